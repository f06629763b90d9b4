#include "intarsia/plan/search/layout.h"

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/plan/memory/published.h"
#include "intarsia/plan/time/cost.h"

namespace intarsia::plan {
namespace {

LayerLayout layer_layout(const Workload& work, const Layout& layout) {
  return {.micro_batch = static_cast<double>(layout.micro_batch),
          .tensor = static_cast<double>(layout.tensor),
          .sequence_parallel = layout.sequence_parallel,
          .tensor_overlap = work.tensor_overlap,
          .recomputed = layout.recomputed,
          .type = work.matrix};
}

StateBytes state_bytes_of(const Workload& work) {
  if (work.matrix == MatrixType::kFp32) return {4, work.grad_bytes, 8};
  return {2, work.grad_bytes, 12};
}

// Parameters of the rank that has most: the first or the last of the pipeline, with the embedding or the head.
double rank_parameters(const TransformerShape& shape, const Layout& layout) {
  const double ends = layout.pipeline > 1 ? shape.vocab * shape.hidden : shape.embedding_parameters();
  return (shape.layers / layout.pipeline * shape.layer_parameters() + ends) / layout.tensor;
}

// The largest unit: a layer, or the embedding.
double unit_parameters(const TransformerShape& shape, const Layout& layout) {
  return std::max(shape.layer_parameters(), shape.vocab * shape.hidden) / layout.tensor;
}

// Layers' activations that the first rank of the pipeline keeps at once.
double layers_in_flight(const TransformerShape& shape, const Layout& layout) {
  const double p = layout.pipeline, m = layout.accumulation, each = shape.layers / p;
  if (p == 1) return each;
  switch (layout.schedule) {
    case PipelineSchedule::kGpipe:
      return each * m;
    case PipelineSchedule::kInterleaved:
      return each * std::min(m, p * (1 + (p - 1) / (p * layout.chunks)));
    default:
      return each * std::min(m, p);
  }
}

AxisShape shard_axis(const ClusterSpec& cluster, const Layout& layout) {
  const double per_host = std::max(1.0, static_cast<double>(cluster.devices_per_host) / layout.tensor);
  return {.ranks = static_cast<double>(layout.shard), .per_host = std::min<double>(per_host, layout.shard)};
}

AxisShape replicate_axis(const ClusterSpec& cluster, const Layout& layout) {
  const double inside = static_cast<double>(layout.tensor) * layout.shard;
  const double per_host = std::max(1.0, cluster.devices_per_host / inside);
  return {.ranks = static_cast<double>(layout.replicate), .per_host = std::min<double>(per_host, layout.replicate)};
}

// Two things at once: the longer one, and a part of the shorter one that they take from each other.
double together(const ClusterSpec& cluster, bool overlap, double compute, double traffic) {
  if (!overlap) return compute + traffic;
  return std::max(compute, traffic) + cluster.device.contention * std::min(compute, traffic);
}

double bubble_micro_batches(const Layout& layout) {
  const double waits = layout.pipeline - 1;
  switch (layout.schedule) {
    case PipelineSchedule::kInterleaved:
      return waits / layout.chunks;
    case PipelineSchedule::kZeroBubbleH1:
      return waits / 3;  // (F + I - W) of F + I + W, all alike
    case PipelineSchedule::kZeroBubbleV:
      return waits / 6;  // ranks begin one after another by half a forward
    default:
      return waits;
  }
}

// Host link, host memory and NVMe at the end of a step. Gradients go down during backward and count as hidden.
double offloaded_update(const ClusterSpec& cluster, const Layout& layout, double owned) {
  const double per_host = cluster.devices_per_host;
  const double adam = 30 * owned * per_host / cluster.host_memory_bandwidth;
  double disk = 0;
  if (layout.offload == Offload::kNvme)
    disk = 12 * owned * per_host * (1 / std::max(cluster.nvme_read, 1.0) + 1 / std::max(cluster.nvme_write, 1.0));
  return std::max(adam, disk) + 2 * owned / cluster.host_link.rate();
}

}  // namespace

const char* offload_name(Offload offload) {
  static constexpr const char* kNames[] = {"none", "optimizer", "optimizer and parameters", "nvme"};
  return kNames[static_cast<std::size_t>(offload)];
}

const char* recomputed_name(Recomputed recomputed) {
  static constexpr const char* kNames[] = {"none", "scores", "half", "selective", "full"};
  return kNames[static_cast<std::size_t>(recomputed)];
}

std::string Layout::text() const {
  std::string out = concat("stage ", stage, ", data ", data());
  if (replicate > 1) out += concat(" (", replicate, " x ", shard, ")");
  out += concat(", tensor ", tensor, ", pipeline ", pipeline);
  if (pipeline > 1) out += concat(" (", schedule_name(schedule), chunks > 1 ? concat(" x ", chunks) : "", ")");
  out += concat(", micro-batch ", micro_batch, " x ", accumulation, ", recompute ", recomputed_name(recomputed));
  if (offload != Offload::kNone) out += concat(", offload ", offload_name(offload));
  return out;
}

LayoutMemory layout_memory(const ClusterSpec& cluster, const Workload& work, const Layout& layout) {
  const TransformerShape& shape = work.shape;
  const LayerLayout layer = layer_layout(work, layout);
  const StateBytes bytes = state_bytes_of(work);
  const double parameters = rank_parameters(shape, layout), unit = unit_parameters(shape, layout);
  const auto part = [&](double each, int from) {
    return parameters * each / (layout.stage >= from ? layout.shard : 1);
  };
  LayoutMemory out;
  out.params = part(bytes.params, 3);
  out.grads = part(bytes.grads, 2);
  out.optimizer = part(bytes.optimizer, 1);
  if (layout.shard > 1 && layout.pipeline > 1) {
    // Under a pipeline units stay whole for the step, and so do gradients until the last micro-batch: reducing each
    // micro-batch would cost as many times the traffic.
    if (layout.stage == 3) out.unsharded += parameters * bytes.params;
    if (layout.stage >= 2) out.unsharded += parameters * bytes.grads;
  } else if (layout.shard > 1) {
    if (layout.stage == 3) out.unsharded += 2 * unit * bytes.params;
    if (layout.stage >= 2) out.unsharded += unit * 4;
  }
  const double tokens = layout.micro_batch * shape.sequence;
  const double kept = kept_bytes_per_token(shape, layer);
  LayerLayout whole = layer;
  whole.recomputed = Recomputed::kNone;
  const double working = layout.recomputed == Recomputed::kNone ? 0 : kept_bytes_per_token(shape, whole);
  const double logits = tokens * logits_bytes_per_token(shape, layer);
  const double first = tokens * (kept * layers_in_flight(shape, layout) + working);
  if (layout.pipeline == 1) {
    out.activations = first;
    out.logits = logits;
  } else {  // the first rank keeps most layers, the last one has the logits
    const double outputs = work.keeps_outputs ? 2 * tokens * shape.vocab / layout.tensor * layout.accumulation : 0;
    const double last = tokens * (kept * shape.layers / layout.pipeline + working) + logits + outputs;
    out.activations = std::max(first, last);
  }
  switch (layout.offload) {
    case Offload::kNone:
      break;
    case Offload::kOptimizer:
      out.host = out.optimizer * cluster.devices_per_host;
      out.optimizer = 0;
      break;
    case Offload::kOptimizerAndParams:
      out.host = (out.optimizer + out.params) * cluster.devices_per_host;
      out.optimizer = 0;
      out.params = 0;
      break;
    case Offload::kNvme:
      out.host = 0.1 * (out.optimizer + out.params) * cluster.devices_per_host;  // buffers
      out.optimizer = 0;
      out.params = 0;
      break;
  }
  out.slack =
      (cluster.device.allocator_slack - 1) * (out.unsharded + out.activations + out.logits) + cluster.device.base_bytes;
  return out;
}

LayoutTime layout_time(const ClusterSpec& cluster, const Workload& work, const Layout& layout) {
  const TransformerShape& shape = work.shape;
  const LayerLayout layer = layer_layout(work, layout);
  const LayerSeconds seconds = layer_seconds(cluster, shape, layer, work.implementation);
  const double layers = shape.layers / layout.pipeline, micro_steps = layout.accumulation;
  const double head = head_seconds(cluster, shape, layer, work.implementation);
  const StateBytes bytes = state_bytes_of(work);
  const AxisShape shard = shard_axis(cluster, layout), replicate = replicate_axis(cluster, layout);
  const double parameters = rank_parameters(shape, layout);

  LayoutTime out;
  // The pipeline's pace is its last rank's, which has the head.
  const double micro = layers * seconds.total() + head;
  out.compute = micro_steps * micro;
  out.recompute = micro_steps * layers * seconds.recompute;
  out.tensor_traffic = micro_steps * layers * seconds.tensor_traffic;
  out.bubble = layout.pipeline > 1 ? bubble_micro_batches(layout) * micro : 0;
  if (layout.pipeline > 1) {
    const double sent = 2 * layout.micro_batch * shape.sequence * shape.hidden / layout.tensor;
    const double passes = 4.0 * (layout.schedule == PipelineSchedule::kZeroBubbleV ? 2 : layout.chunks);
    out.pipeline_traffic = (micro_steps + bubble_micro_batches(layout)) * passes * sent / cluster.inter.rate();
  }

  const double reduced = work.grad_bytes * parameters, weights = bytes.params * parameters;
  if (layout.shard > 1) {
    const double gather = axis_seconds(cluster, shard, Collective::kAllGather, weights);
    const double scatter = axis_seconds(cluster, shard, Collective::kReduceScatter, reduced);
    if (layout.stage <= 1 || layout.pipeline > 1) {
      out.data_traffic =
          scatter + (layout.stage == 0 ? axis_seconds(cluster, shard, Collective::kAllGather, reduced) : gather);
    } else if (layout.stage == 2) {
      const double backward = layers * (seconds.backward + seconds.recompute);
      out.data_traffic = micro_steps * (together(cluster, work.overlap, backward, scatter) - backward) + gather;
    } else {
      const double forward = layers * seconds.forward, backward = layers * (seconds.backward + seconds.recompute);
      const double extra = together(cluster, work.overlap, forward, gather) - forward +
                           together(cluster, work.overlap, backward, gather + scatter) - backward;
      out.data_traffic = micro_steps * (extra + gather / layers);  // the first unit's gather hides behind nothing
    }
  }
  if (layout.replicate > 1) {
    const double owned = layout.stage >= 2 ? reduced / layout.shard : reduced;
    out.data_traffic += axis_seconds(cluster, replicate, Collective::kAllReduce, owned);
  }
  const double owned = parameters / (layout.stage >= 1 ? layout.shard : 1);
  out.update = layout.offload == Offload::kNone ? memory_seconds(cluster.device, 30 * owned)
                                                : offloaded_update(cluster, layout, owned);
  return out;
}

Throughput throughput(const ClusterSpec& cluster, const Workload& work, const Layout& layout, double step_seconds) {
  const double tokens =
      work.shape.sequence * layout.micro_batch * layout.accumulation / (layout.tensor * layout.pipeline);
  const double peak = cluster.device.peak_flops[static_cast<std::size_t>(work.matrix)];
  Throughput out;
  out.tokens_per_second = tokens / step_seconds;
  out.mfu = out.tokens_per_second * flops_per_token(work.shape, FlopsConvention::kCausalHalf) / peak;
  out.mfu_full_square = out.tokens_per_second * flops_per_token(work.shape, FlopsConvention::kFullSquare) / peak;
  return out;
}

std::string bottleneck(const ClusterSpec& cluster, const Layout& layout, const LayoutTime& time) {
  const AxisShape data{.ranks = static_cast<double>(layout.data()),
                       .per_host = std::max(1.0, static_cast<double>(cluster.devices_per_host) / layout.tensor)};
  const double links[] = {time.data_traffic, time.tensor_traffic, time.pipeline_traffic,
                          layout.offload == Offload::kNone ? 0 : time.update};
  const auto most = std::ranges::max_element(links) - std::begin(links);
  if (links[most] < 0.02 * time.total()) return "none";
  switch (most) {
    case 0:
      return concat(slowest_link(cluster, data).name, " (gradients and parameters)");
    case 1:
      return concat(layout.tensor > cluster.devices_per_host ? cluster.inter.name : cluster.intra.name,
                    " (tensor parallel)");
    case 2:
      return concat(cluster.inter.name, " (between pipeline ranks)");
    default:
      return concat(cluster.host_link.name, " and host memory (offload)");
  }
}

}  // namespace intarsia::plan
