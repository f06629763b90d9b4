#include "intarsia/models/model.h"

#include <ATen/ATen.h>

#include "intarsia/base/error.h"
#include "intarsia/models/llama/llama.h"

namespace intarsia::models {

std::unique_ptr<Model> make_model(const formats::HfConfig& config, const plan::ModelSpec& spec,
                                  plan::Recompute recompute) {
  if (config.model_type == "llama") return std::make_unique<llama::Llama>(config, spec, recompute);
  fail(ErrorKind::kUnsupported, "model_type \"", config.model_type, "\" is not supported; supported: llama");
}

at::Tensor causal_loss_sum(const at::Tensor& logits, const at::Tensor& labels) {
  const std::int64_t length = labels.size(1);
  if (labels.size(0) == 0 || length < 2) return (logits.to(at::kFloat) * 0).sum();
  const at::Tensor predictions = logits.narrow(1, 0, length - 1).flatten(0, 1).to(at::kFloat);
  const at::Tensor targets = labels.narrow(1, 1, length - 1).flatten();
  return at::cross_entropy_loss(predictions, targets, {}, at::Reduction::Sum, -100);
}

}  // namespace intarsia::models
