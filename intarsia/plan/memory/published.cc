#include "intarsia/plan/memory/published.h"

#include <algorithm>

namespace intarsia::plan {

double zero_state_bytes(double parameters, int stage, double devices, const StateBytes& bytes) {
  const auto part = [&](double each, int from) { return stage >= from ? each / devices : each; };
  return parameters * (part(bytes.params, 3) + part(bytes.grads, 2) + part(bytes.optimizer, 1));
}

double zero_largest_model(double device_bytes, int stage, double devices, const StateBytes& bytes) {
  return device_bytes / zero_state_bytes(1, stage, devices, bytes);
}

double korthikanti_activation_bytes(const PaperModel& model, const PaperLayout& layout) {
  const double sbh = model.sequence * layout.micro_batch * model.hidden;
  const double scores = 5 * model.heads * model.sequence / model.hidden;
  const double t = layout.tensor;
  double layer = 0;
  switch (layout.recompute) {
    case PaperRecompute::kNone:
      layer = layout.sequence_parallel ? sbh / t * (34 + scores) : sbh * (10 + (24 + scores) / t);
      break;
    case PaperRecompute::kSelective:
      layer = layout.sequence_parallel ? 34 * sbh / t : sbh * (10 + 24 / t);
      break;
    case PaperRecompute::kFull:
      layer = 2 * sbh / (layout.sequence_parallel ? t : 1);
      break;
  }
  // The first rank holds p micro-batches of L / p layers, and more where chunks are interleaved.
  const double more = layout.chunks > 1 ? 1 + (layout.pipeline - 1) / (layout.pipeline * layout.chunks) : 1;
  return layer * model.layers * more;
}

double megatron_state_bytes(const PaperModel& model, double devices) {
  return 18 * 12 * model.layers * model.hidden * model.hidden / devices;
}

double infinity_state_bytes(const PaperModel& model) { return 240 * model.layers * model.hidden * model.hidden; }

double infinity_kept_inputs_bytes(const PaperModel& model, double batch, double interval) {
  return 2 * batch * model.sequence * model.hidden * model.layers / interval;
}

double infinity_model_working_bytes(const PaperModel& model) { return 4 * model.hidden * 4 * model.hidden; }

double infinity_activation_working_bytes(const PaperModel& model, double batch, double interval) {
  return 2 * batch * model.sequence * interval * (16 * model.hidden + 2 * model.heads * model.sequence);
}

double infinity_efficiency(double intensity, double bandwidth, double peak) {
  return intensity * bandwidth / (intensity * bandwidth + peak);
}

EstimatorBytes deepspeed_zero2_estimate(double parameters, const EstimatorLayout& layout, EstimatorOffload offload,
                                        bool documented) {
  const double total = layout.devices_per_host * layout.hosts, slack = 1.5;
  if (offload == EstimatorOffload::kNone)
    return {.device = documented ? parameters * (4 + 16 / total) : parameters * (2 + 18 / total),
            .host = parameters * 4 * layout.devices_per_host * slack};
  return {.device = parameters * 2, .host = parameters * std::max(4 * total, 16.0) * slack};
}

EstimatorBytes deepspeed_zero3_estimate(double parameters, double largest, const EstimatorLayout& layout,
                                        EstimatorOffload offload) {
  const double total = layout.devices_per_host * layout.hosts, slack = 1.5;
  switch (offload) {
    case EstimatorOffload::kNone:
      return {.device = 4 * largest + 18 * parameters / total, .host = 4 * largest * layout.devices_per_host * slack};
    case EstimatorOffload::kOptimizer:
      return {.device = 4 * largest + 2 * parameters / total, .host = 16 * parameters / layout.hosts * slack};
    case EstimatorOffload::kAll:
      break;
  }
  return {.device = 4 * largest, .host = 18 * parameters / layout.hosts * slack};
}

double zero3_volume(const ZeroPlusPlus& options) {
  const double forward = options.quantized_weights ? 0.5 : 1;
  const double backward = options.hierarchical_weights ? 0 : 1;
  const double gradients = options.quantized_gradients ? 0.25 : 1;
  return forward + backward + gradients;
}

}  // namespace intarsia::plan
