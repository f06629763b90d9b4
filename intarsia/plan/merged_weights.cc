#include "intarsia/plan/merged_weights.h"

#include <filesystem>
#include <unordered_set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/plan/lora.h"

namespace intarsia::plan {
namespace {

std::vector<float> whole(const formats::SafetensorsFile& file, const formats::TensorInfo& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  formats::read_as_f32(file, tensor, 0, tensor.numel(), values.data());
  return values;
}

}  // namespace

MergedWeights::MergedWeights(std::unique_ptr<WeightSource> base, const std::string& directory, const ModelSpec& model)
    : base_(std::move(base)), config_(formats::read_adapter_config(directory)), transposed_(model.family == "gpt2") {
  const std::string path = (std::filesystem::path(directory) / formats::kAdapterWeightsName).string();
  const auto file = formats::SafetensorsFile::open(path);
  std::unordered_set<std::string> known;
  std::vector<std::string> problems;
  for (const LoraTarget& at : lora_targets(model)) {
    const std::string a_name = peft_name(model, lora_a_name(at.layer)),
                      b_name = peft_name(model, lora_b_name(at.layer));
    const formats::TensorInfo *a = file.find(a_name), *b = file.find(b_name);
    known.insert({a_name, b_name});
    if (a == nullptr && b == nullptr) continue;
    if (a == nullptr || b == nullptr) {
      problems.push_back(concat(a == nullptr ? a_name : b_name, " is missing"));
      continue;
    }
    const auto fits = [&](const formats::TensorInfo& tensor, std::vector<std::int64_t> shape) {
      if (tensor.shape == shape) return true;
      problems.push_back(concat(tensor.name, " has shape ", formats::shape_text(tensor.shape),
                                ", the model and r = ", config_.r, " ask for ", formats::shape_text(shape)));
      return false;
    };
    if (!fits(*a, {config_.r, at.in}) || !fits(*b, {at.out, config_.r})) continue;
    pairs_.emplace(model.params[static_cast<std::size_t>(at.weight)].name,
                   Pair{whole(file, *a), whole(file, *b), at.in, at.out});
  }
  for (const formats::TensorInfo& tensor : file.tensors())
    if (!known.contains(tensor.name))
      problems.push_back(
          concat(printable(tensor.name), " belongs to no linear layer of a block of this ", model.family));
  if (problems.empty() && pairs_.empty()) problems.emplace_back("it has no tensors");
  INTARSIA_CHECK(kFormat, problems.empty(), printable(path), " is no adapter of this model: ", join(problems, "; "));
}

void MergedWeights::read(const ParamSpec& param, Range range, float* out) const {
  base_->read(param, range, out);
  const auto found = pairs_.find(param.name);
  if (found == pairs_.end()) return;
  const Pair& pair = found->second;
  const auto scale = static_cast<float>(config_.scale);
  const std::int64_t width = param.shape[1];
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const std::int64_t row = i / width, column = i % width;
    const std::int64_t at_out = transposed_ ? column : row, at_in = transposed_ ? row : column;
    float sum = 0;
    for (std::int64_t k = 0; k < config_.r; ++k)
      sum += pair.b[static_cast<std::size_t>(at_out * config_.r + k)] *
             pair.a[static_cast<std::size_t>(k * pair.in + at_in)];
    out[i - range.begin] += scale * sum;
  }
}

}  // namespace intarsia::plan
