// A model's weights with a LoRA adapter added in: W + scale B A.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "intarsia/formats/adapter_config.h"
#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::plan {

// Sums are fp32, over the rank in order. Memory: the adapter in fp32.
class MergedWeights final : public WeightSource {
 public:
  // Reads the adapter in `directory` (adapter_config.json, adapter_model.safetensors) whole; `model` is the base's.
  // Errors: those of formats::read_adapter_config; kIo; kFormat, one for all: each tensor that belongs to no layer of
  // the model, has no partner or another shape than the layer and the rank ask for.
  MergedWeights(std::unique_ptr<WeightSource> base, const std::string& directory, const ModelSpec& model);

  void read(const ParamSpec& param, Range range, float* out) const override;
  std::size_t num_layers() const { return pairs_.size(); }

 private:
  struct Pair {
    std::vector<float> a, b;  // [r, in], [out, r]
    std::int64_t in = 0, out = 0;
  };
  std::unique_ptr<WeightSource> base_;
  formats::AdapterConfig config_;
  bool transposed_;                              // weights are [in, out]
  std::unordered_map<std::string, Pair> pairs_;  // by the weight's name
};

}  // namespace intarsia::plan
