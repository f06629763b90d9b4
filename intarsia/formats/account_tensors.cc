#include "intarsia/formats/account_tensors.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/problem_list.h"

namespace intarsia::formats {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
}

bool same_bytes(const LocatedTensor& a, const LocatedTensor& b) {
  if (a.tensor->dtype != b.tensor->dtype || a.tensor->shape != b.tensor->shape) return false;
  a.file->check_unchanged();
  b.file->check_unchanged();
  const auto left = a.file->bytes(*a.tensor);
  const auto right = b.file->bytes(*b.tensor);
  return left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace

// Frequencies of rotary embedding, and GPT-2's causal mask with the number that it writes where nothing is seen.
bool is_computed_buffer(const std::string& name, std::size_t num_dims) {
  return name.ends_with(".rotary_emb.inv_freq") || (name.ends_with(".attn.bias") && num_dims == 4) ||
         (name.ends_with(".attn.masked_bias") && num_dims == 0);
}

std::vector<LocatedTensor> account_tensors(const ModelDirectory& model, const std::vector<ExpectedTensor>& expected) {
  ProblemList problems;
  std::vector<LocatedTensor> result;
  std::unordered_set<std::string> known;
  for (const ExpectedTensor& wanted : expected) {
    std::vector<std::string> names = wanted.tied_names;
    names.insert(names.begin(), wanted.name);
    known.insert(names.begin(), names.end());
    LocatedTensor found;
    for (const std::string& name : names) {
      const LocatedTensor candidate = model.find(name);
      if (candidate.tensor == nullptr) continue;
      const TensorInfo& tensor = *candidate.tensor;
      if (tensor.shape != wanted.shape)
        problems.add("\"", name, "\" has shape ", shape_text(tensor.shape), ", config.json asks for ",
                     shape_text(wanted.shape));
      else if (!is_float(tensor.dtype))
        problems.add("\"", name, "\" has dtype ", safetensors_name(tensor.dtype),
                     ", a weight must be F32, BF16, F16 or F64");
      else if (found.tensor != nullptr && !same_bytes(found, candidate))
        problems.add("\"", name, "\" is tied to \"", found.tensor->name, "\" but has other values");
      if (found.tensor == nullptr) found = candidate;
    }
    if (found.tensor == nullptr) problems.add("\"", wanted.name, "\" ", shape_text(wanted.shape), " is missing");
    result.push_back(found);
  }
  for (const TensorFile& file : model.files())
    for (const TensorInfo& tensor : file.tensors())
      if (!known.contains(tensor.name) && !is_computed_buffer(tensor.name, tensor.shape.size()))
        problems.add("\"", printable(tensor.name), "\" ", shape_text(tensor.shape),
                     " belongs to no parameter that config.json asks for");
  problems.throw_if_any(ErrorKind::kFormat,
                        concat("the weights in ", printable(model.path()), " are not this model's"));
  return result;
}

}  // namespace intarsia::formats
