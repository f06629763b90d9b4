#include "intarsia/plan/checkpoint_weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/account_tensors.h"
#include "intarsia/formats/float_cast.h"
#include "intarsia/formats/problem_list.h"
#include "intarsia/formats/tensor_file.h"

namespace intarsia::plan {
namespace {

std::vector<std::string> names_of(const ParamSpec& param) {
  std::vector<std::string> names = param.tied_names;
  names.insert(names.begin(), param.name);
  return names;
}

// Whether two tensors have the same bits as fp32.
bool same_values(const formats::LogicalCheckpoint& checkpoint, const formats::LogicalTensor& a,
                 const formats::LogicalTensor& b) {
  if (a.shape != b.shape || !formats::is_weight_dtype(a.dtype) || !formats::is_weight_dtype(b.dtype)) return false;
  constexpr std::int64_t kChunk = 1 << 18;
  std::vector<float> left, right;
  for (std::int64_t begin = 0; begin < a.numel(); begin += kChunk) {
    const std::int64_t end = std::min(begin + kChunk, a.numel());
    left.resize(static_cast<std::size_t>(end - begin));
    right.resize(left.size());
    checkpoint.read(a, begin, end, left.data());
    checkpoint.read(b, begin, end, right.data());
    if (std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace

CheckpointWeights::CheckpointWeights(formats::LogicalCheckpoint checkpoint, const ModelSpec& model)
    : checkpoint_(std::move(checkpoint)) {
  formats::ProblemList problems;
  std::set<std::string> known;
  for (const ParamSpec& param : model.params) {
    const formats::LogicalTensor* found = nullptr;
    for (const std::string& name : names_of(param)) {
      known.insert(name);
      const formats::LogicalTensor* const other = checkpoint_.weight(name);
      if (found == nullptr) {
        found = other;
      } else if (other != nullptr && other != found && !same_values(checkpoint_, *found, *other)) {
        problems.add("\"", name, "\" is tied to \"", found->name, "\" but has other values");
      }
    }
    if (found == nullptr) {
      problems.add("\"", param.name, "\" ", formats::shape_text(param.shape), " is missing");
    } else if (found->shape != param.shape && !(found->shape == std::vector<std::int64_t>{param.numel()} &&
                                                checkpoint_.format().ends_with("universal"))) {
      problems.add("\"", param.name, "\" has shape ", formats::shape_text(found->shape), ", config.json asks for ",
                   formats::shape_text(param.shape));
    } else if (!formats::is_weight_dtype(found->dtype)) {
      problems.add("\"", param.name, "\" has dtype ", safetensors_name(found->dtype), ", which cannot be a weight");
    }
    weights_.emplace(param.name, found);
  }
  for (const formats::LogicalTensor* tensor : checkpoint_.weights())
    if (!known.contains(tensor->name) && !formats::is_computed_buffer(tensor->name, tensor->shape.size()))
      problems.add("\"", printable(tensor->name), "\" ", formats::shape_text(tensor->shape),
                   " belongs to no parameter that config.json asks for");
  problems.throw_if_any(ErrorKind::kFormat,
                        concat("the weights in ", printable(checkpoint_.path()), " are not this model's"));
}

void CheckpointWeights::read(const ParamSpec& param, Range range, float* out) const {
  const auto found = weights_.find(param.name);
  INTARSIA_INVARIANT(found != weights_.end(), "no parameter ", param.name, " in ", checkpoint_.path());
  checkpoint_.read(*found->second, range.begin, range.end, out);
}

const formats::LogicalTensor* CheckpointWeights::find(std::string_view kind, const ParamSpec& param) const {
  if (kind == "master" || kind == "weight") return weights_.at(param.name);
  for (const std::string& name : names_of(param)) {
    const formats::LogicalTensor* const found = checkpoint_.find(kind, name);
    if (found == nullptr) continue;
    INTARSIA_CHECK(kFormat,
                   found->numel() == param.numel() && (found->shape.size() == 1 || found->shape == param.shape),
                   printable(checkpoint_.path()), ": \"", printable(found->stored_name()), "\" has shape ",
                   formats::shape_text(found->shape), ", the parameter's is ", formats::shape_text(param.shape));
    return found;
  }
  return nullptr;
}

}  // namespace intarsia::plan
