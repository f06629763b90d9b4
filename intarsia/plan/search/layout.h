// A way of dividing a run among devices, and what it would cost by closed forms: what the search compares.
#pragma once

#include <cstdint>
#include <string>

#include "intarsia/plan/sim/pipeline_schedule.h"
#include "intarsia/plan/time/transformer.h"

namespace intarsia::plan {

enum class Offload { kNone, kOptimizer, kOptimizerAndParams, kNvme };
const char* offload_name(Offload offload);
const char* recomputed_name(Recomputed recomputed);

// devices = replicate x shard x tensor x pipeline. Tensor ranks are neighbours, then shard, replicate, pipeline.
struct Layout {
  int replicate = 1;
  int shard = 1;  // data-parallel ranks that divide states by `stage`
  int tensor = 1;
  int pipeline = 1;
  int chunks = 1;
  int stage = 0;
  int micro_batch = 1;
  int accumulation = 1;
  bool sequence_parallel = false;
  Recomputed recomputed = Recomputed::kNone;
  Offload offload = Offload::kNone;
  PipelineSchedule schedule = PipelineSchedule::kOneFOneB;

  int data() const { return replicate * shard; }
  int devices() const { return data() * tensor * pipeline; }
  std::string text() const;
};

// What is asked, beside the layout.
struct Workload {
  TransformerShape shape;
  MatrixType matrix = MatrixType::kHalf;
  double grad_bytes = 4;  // of a gradient's sum; 2 where a system reduces in 16 bits
  bool overlap = true;    // traffic of units hides behind other units' computation
  double tensor_overlap = 0;
  bool keeps_outputs = false;  // the pipeline's last rank keeps its 16-bit logits of all micro-batches, as torch's does
  Implementation implementation = kEager;
};

// Bytes of one device; `host` of one host.
struct LayoutMemory {
  double params = 0, grads = 0, optimizer = 0;
  double unsharded = 0;  // gathered units and reduce buffers
  double activations = 0, logits = 0;
  double slack = 0;  // of the allocator, and what a process has beside tensors
  double host = 0;
  double states() const { return params + grads + optimizer; }
  double total() const { return states() + unsharded + activations + logits + slack; }
};
LayoutMemory layout_memory(const ClusterSpec& cluster, const Workload& work, const Layout& layout);

// Seconds of one optimizer update.
struct LayoutTime {
  double compute = 0;         // products, attention and passes of all micro-steps, recomputation included
  double recompute = 0;       // of it
  double tensor_traffic = 0;  // of it
  double bubble = 0;
  double data_traffic = 0;  // not hidden
  double pipeline_traffic = 0;
  double update = 0;  // optimizer, where it runs, with its transfers
  double total() const { return compute + bubble + data_traffic + pipeline_traffic + update; }
};
LayoutTime layout_time(const ClusterSpec& cluster, const Workload& work, const Layout& layout);

struct Throughput {
  double tokens_per_second = 0;  // of one device
  double mfu = 0;                // causal half, of the peak of the matrix type
  double mfu_full_square = 0;    // by the convention that counts the whole square of scores
};
Throughput throughput(const ClusterSpec& cluster, const Workload& work, const Layout& layout, double step_seconds);

// The link that takes most of the exposed traffic, or "none".
std::string bottleneck(const ClusterSpec& cluster, const Layout& layout, const LayoutTime& time);

}  // namespace intarsia::plan
