// LoRA: low-rank adapters beside frozen weights, as parameters of a ModelSpec.
// Source: LoRA (arXiv 2106.09685), section 4; names, first values and the form of the result as PEFT has them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::config {
struct LoraConfig;
}

namespace intarsia::plan {

// y = W x + scale() B (A x) with A [r, in] and B [out, r], for each adapted linear layer.
struct LoraPlan {
  std::int64_t r = 0;  // 0: the model has no adapters
  double alpha = 0;
  double dropout = 0;  // share of its inputs that an adapter does not see while it is trained
  std::vector<std::string> targets;
  double scale() const { return r > 0 ? alpha / static_cast<double>(r) : 0; }
};

// Adapters of the layer called `layer`: "LAYER.lora_A.weight" and "LAYER.lora_B.weight".
std::string lora_a_name(const std::string& layer);
std::string lora_b_name(const std::string& layer);
// The name that PEFT stores an adapter's tensor under, from a parameter's name in a ModelSpec:
// "base_model.model." before it, and GPT-2's "transformer." where the model's own files leave it out.
std::string peft_name(const ModelSpec& model, const std::string& name);

bool is_adapter(const ParamSpec& param);
bool has_adapters(const ModelSpec& model);

// A linear layer of a transformer block that can have an adapter.
struct LoraTarget {
  std::string layer;  // "model.layers.0.self_attn.q_proj"
  int weight = 0;     // its parameter
  std::int64_t in = 0, out = 0;
};

// The linear layers of all blocks; GPT-2's weights are [in, out], the other families' [out, in]. Embeddings and heads
// are none of them.
std::vector<LoraTarget> lora_targets(const ModelSpec& model);

// Freezes every parameter and adds A and B behind their weight's unit for each target: a layer whose name ends with one
// of `config.targets` (whole parts: "q_proj", "attn.c_proj"); without targets those of query and value, or of GPT-2's
// c_attn, as PEFT chooses. Does nothing for config.r == 0.
// Errors: kConfig for a target that no layer has, with the layers that there are.
void add_lora(const config::LoraConfig& config, ModelSpec& model);

// The LoraPlan of `model` as add_lora() left it.
LoraPlan lora_plan(const config::LoraConfig& config, const ModelSpec& model);

// The parameters that a model's own files have.
ModelSpec without_adapters(ModelSpec model);

// What a run with adapters starts from: `base`, and for the adapters PEFT's first values: A uniform within
// 1 / sqrt(in) of zero (Kaiming's with a = sqrt(5)), from the seed and the parameter's name; B zeros.
class LoraWeights final : public WeightSource {
 public:
  LoraWeights(std::unique_ptr<WeightSource> base, std::uint64_t seed) : base_(std::move(base)), seed_(seed) {}
  void read(const ParamSpec& param, Range range, float* out) const override;

 private:
  std::unique_ptr<WeightSource> base_;
  std::uint64_t seed_;
};

}  // namespace intarsia::plan
