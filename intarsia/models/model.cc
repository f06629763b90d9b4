#include "intarsia/models/model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/models/gpt2/gpt2.h"
#include "intarsia/models/llama/llama.h"
#include "intarsia/nn/autocast.h"
#include "intarsia/tensor/device.h"

namespace intarsia::models {

namespace {

class AutocastModel final : public Model {
 public:
  AutocastModel(std::unique_ptr<Model> model, DType dtype, c10::DeviceType device)
      : model_(std::move(model)), dtype_(dtype), device_(device) {}
  at::Tensor logits(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                    const at::Tensor& positions) override {
    const nn::AutocastScope autocast(dtype_, device_);
    return model_->logits(parameters, events, input_ids, positions);
  }
  at::Tensor last_logits(const nn::Parameters& parameters, nn::UnitEvents* events, std::span<const std::int64_t> ids,
                         KeyValueCache& cache) override {
    const nn::AutocastScope autocast(dtype_, device_);
    return model_->last_logits(parameters, events, ids, cache);
  }
  void set_sample_places(std::vector<std::int64_t> places) override { model_->set_sample_places(std::move(places)); }

 private:
  std::unique_ptr<Model> model_;
  DType dtype_;
  c10::DeviceType device_;
};

std::unique_ptr<Model> make_family(const formats::HfConfig& config, const plan::RunPlan& plan, AdapterRule adapters) {
  const std::vector<std::string> known = formats::known_model_types();
  INTARSIA_CHECK(kUnsupported, std::ranges::find(known, config.model_type) != known.end(), "model_type \"",
                 printable(config.model_type), "\" is not supported; supported: ", join(known));
  if (config.model_type == "gpt2")
    return std::make_unique<gpt2::Gpt2>(config, plan.model, plan.recompute, std::move(adapters));
  return std::make_unique<llama::Llama>(config, plan.model, plan.recompute, std::move(adapters));
}

}  // namespace

std::unique_ptr<Model> make_model(const formats::HfConfig& config, const plan::RunPlan& plan,
                                  const plan::LoraPlan& lora) {
  INTARSIA_INVARIANT((lora.r > 0) == plan::has_adapters(plan.model), "adapters of rank ", lora.r,
                     " do not belong to these parameters");
  std::unique_ptr<Model> model =
      make_family(config, plan, {.scale = lora.scale(), .dropout = lora.dropout, .seed = plan.seed});
  if (!plan.autocast) return model;
  return std::make_unique<AutocastModel>(std::move(model), *plan.autocast, tensor::device_type(plan.device));
}

at::Tensor Model::loss_sum(const nn::Parameters& parameters, nn::UnitEvents* events, const at::Tensor& input_ids,
                           const at::Tensor& positions, const at::Tensor& labels) {
  return causal_loss_sum(logits(parameters, events, input_ids, positions), labels);
}

at::Tensor next_labels(const at::Tensor& labels) {
  const at::Tensor targets = at::full(labels.sizes(), -100, at::kLong);
  if (labels.size(1) > 1) targets.narrow(1, 0, labels.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
  return targets.flatten();
}

at::Tensor causal_loss_sum(const at::Tensor& logits, const at::Tensor& labels) {
  const std::int64_t length = labels.size(1);
  if (labels.size(0) == 0 || length < 2) return (logits.to(at::kFloat) * 0).sum();
  const at::Tensor predictions = logits.narrow(1, 0, length - 1).flatten(0, 1).to(at::kFloat);
  const at::Tensor targets = labels.narrow(1, 1, length - 1).flatten().to(logits.device());
  return at::cross_entropy_loss(predictions, targets, {}, at::Reduction::Sum, -100);
}

}  // namespace intarsia::models
