// Memory by the formulas of the papers, for what closed forms are good for: comparing stages, layouts that this program
// cannot run yet, and checking that our own count comes out as their special case. Bytes on each device unless said
// otherwise; P parameters in all.
#pragma once

#include <cstdint>

namespace intarsia::plan {

// Bytes a parameter of each part of the model states.
struct StateBytes {
  double params = 2;
  double grads = 2;
  double optimizer = 12;  // "K": fp32 copy and Adam's two moments
};

// The ZeRO paper's mixed precision (2 + 2 + 12), ours with fp32 sums (2 + 4 + 12), and pure fp32 (4 + 4 + 8).
inline constexpr StateBytes kZeroPaper{2, 2, 12};
inline constexpr StateBytes kFp32Gradients{2, 4, 12};
inline constexpr StateBytes kPureFp32{4, 4, 8};

// Bytes a device for the states of `parameters` on `devices` data-parallel ranks. Source: ZeRO (arXiv 1910.02054),
// section 3.1 and figure 1.
double zero_state_bytes(double parameters, int stage, double devices, const StateBytes& bytes = kZeroPaper);

// The largest model that `device_bytes` hold, states only. Source: ZeRO, table 2.
double zero_largest_model(double device_bytes, int stage, double devices, const StateBytes& bytes = kZeroPaper);

// A transformer as the papers describe it: width h, feed-forward 4h, biases and dropout.
struct PaperModel {
  double layers = 0;
  double hidden = 0;
  double heads = 0;
  double sequence = 0;
};

enum class PaperRecompute { kNone, kSelective, kFull };

struct PaperLayout {
  double micro_batch = 1;
  double tensor = 1;
  double pipeline = 1;
  double chunks = 1;  // of a pipeline rank; above 1: interleaved
  bool sequence_parallel = false;
  PaperRecompute recompute = PaperRecompute::kNone;
};

// Activations of the first pipeline rank, embedding and head ignored. Source: Korthikanti et al. (arXiv 2205.05198),
// table 2 and section 4.2.
double korthikanti_activation_bytes(const PaperModel& model, const PaperLayout& layout);

// 18 bytes for each of 12 L h^2 parameters, over all devices. Source: the same, and Megatron-LM.
double megatron_state_bytes(const PaperModel& model, double devices);

// ZeRO-Infinity (arXiv 2104.07857), section 3, equations 2 to 5.
double infinity_state_bytes(const PaperModel& model);  // 20 bytes a parameter: an fp32 gradient is counted
// Inputs that are kept for recomputation: `batch` samples, one each `interval` blocks.
double infinity_kept_inputs_bytes(const PaperModel& model, double batch, double interval);
double infinity_model_working_bytes(const PaperModel& model);  // the largest operator's parameters and gradients
// Of one device with `batch` samples. The paper's expression counts elements: two bytes each.
double infinity_activation_working_bytes(const PaperModel& model, double batch, double interval);
// Share of the peak (flops/s) that remains when `intensity` flops a byte must pass a link of `bandwidth` bytes/s.
double infinity_efficiency(double intensity, double bandwidth, double peak);

// DeepSpeed's estimators: states only, bytes. `documented`: the formula behind the tables in its documentation; the
// code of 0.19 has the other. Source: DeepSpeed, runtime/zero/stage_1_and_2.py and stage3.py.
struct EstimatorBytes {
  double device = 0;
  double host = 0;  // of each host
};
enum class EstimatorOffload { kNone, kOptimizer, kAll };
struct EstimatorLayout {
  double devices_per_host = 1;
  double hosts = 1;
};
EstimatorBytes deepspeed_zero2_estimate(double parameters, const EstimatorLayout& layout, EstimatorOffload offload,
                                        bool documented = false);
// `largest`: parameters of the largest layer.
EstimatorBytes deepspeed_zero3_estimate(double parameters, double largest, const EstimatorLayout& layout,
                                        EstimatorOffload offload);

// Elements that each rank sends a step across hosts, as multiples of the model. Source: ZeRO++ (arXiv 2306.10209),
// table 1.
struct ZeroPlusPlus {
  bool quantized_weights = false;     // int8 in forward's gather
  bool hierarchical_weights = false;  // backward gathers within the host
  bool quantized_gradients = false;   // int4
};
double zero3_volume(const ZeroPlusPlus& options);

}  // namespace intarsia::plan
