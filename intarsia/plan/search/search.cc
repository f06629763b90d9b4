#include "intarsia/plan/search/search.h"

#include <algorithm>
#include <array>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::plan {
namespace {

std::vector<int> divisors(std::int64_t number) {
  std::vector<int> low, high;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(static_cast<int>(d));
    if (d != number / d) high.push_back(static_cast<int>(number / d));
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

template <typename T>
bool allowed(const std::optional<T>& fixed, T value) {
  return !fixed || *fixed == value;
}

bool whole(double a, double b) { return std::int64_t(a) % std::int64_t(b) == 0; }

// What not_runnable_here() says in words.
bool runs_here(const Layout& layout) {
  return layout.tensor == 1 && layout.pipeline == 1 && layout.offload == Offload::kNone &&
         layout.recomputed != Recomputed::kScores && layout.recomputed != Recomputed::kHalf;
}

class Search {
 public:
  Search(const ClusterSpec& cluster, const Workload& work, const SearchSpace& space)
      : cluster_(cluster), work_(work), space_(space) {}

  SearchResult run() {
    for (const int tensor : divisors(space_.devices)) {
      if (!allowed(space_.tensor, tensor) || !tensor_fits(tensor)) continue;
      for (const int pipeline : divisors(space_.devices / tensor)) {
        if (!allowed(space_.pipeline, pipeline) || pipeline > work_.shape.layers) continue;
        const int data = space_.devices / tensor / pipeline;
        if (space_.global_batch % data != 0) continue;
        for (const int replicate : divisors(data)) {
          if (!allowed(space_.replicate, replicate)) continue;
          Layout layout;
          layout.tensor = tensor;
          layout.pipeline = pipeline;
          layout.replicate = replicate;
          layout.shard = data / replicate;
          layout.sequence_parallel = tensor > 1;
          stages(layout);
        }
      }
    }
    std::ranges::sort(best_, {}, &Scored::key);
    for (const Scored& scored : best_) result_.best.push_back(detail(scored.layout));
    for (std::size_t i = 1; i < result_.best.size(); ++i) explain(result_.best.front(), result_.best[i]);
    if (runnable_) {
      result_.runnable = detail(runnable_->layout);
      if (!result_.best.empty()) explain(result_.best.front(), *result_.runnable);
    }
    if (result_.best.empty() && smallest_) result_.smallest = detail(smallest_->layout);
    std::ranges::sort(frontier_, {}, &Scored::seconds);
    for (const Scored& scored : frontier_) result_.frontier.push_back(detail(scored.layout));
    return std::move(result_);
  }

 private:
  struct Scored {
    double seconds = 0, bytes = 0;
    Layout layout;
    // Of two that are as fast, the smaller one.
    std::pair<double, double> key() const { return {seconds, bytes}; }
  };

  bool tensor_fits(int tensor) const {
    const TransformerShape& shape = work_.shape;
    return tensor <= cluster_.devices_per_host && whole(shape.heads, tensor) && whole(shape.kv_heads, tensor) &&
           whole(shape.ffn, tensor);
  }

  void stages(Layout layout) {
    // Sharding over one rank is stage 0; a group of replicas over several hosts wants a shard group.
    const int first = layout.shard == 1 ? 0 : 1, last = layout.shard == 1 ? 0 : 3;
    for (int stage = layout.data() == 1 ? 0 : first; stage <= last; ++stage) {
      if (!allowed(space_.stage, stage)) continue;
      layout.stage = stage;
      batches(layout);
    }
    if (layout.shard > 1 && layout.replicate == 1 && allowed(space_.stage, 0)) {
      layout.stage = 0;
      batches(layout);
    }
  }

  void batches(Layout layout) {
    const std::int64_t samples = space_.global_batch / layout.data();
    for (const int micro_batch : divisors(samples)) {
      if (!allowed(space_.micro_batch, micro_batch)) continue;
      layout.micro_batch = micro_batch;
      layout.accumulation = static_cast<int>(samples / micro_batch);
      schedules(layout);
    }
  }

  void schedules(Layout layout) {
    layout.schedule = PipelineSchedule::kOneFOneB;
    layout.chunks = 1;
    recomputations(layout);
    if (layout.pipeline == 1) return;
    const double layers = work_.shape.layers / layout.pipeline;
    for (const int chunks : {2, 4}) {
      if (layout.accumulation % layout.pipeline != 0 || layers < chunks) continue;
      layout.schedule = PipelineSchedule::kInterleaved;
      layout.chunks = chunks;
      recomputations(layout);
    }
    layout.chunks = 1;
    layout.schedule = PipelineSchedule::kZeroBubbleH1;
    recomputations(layout);
  }

  void recomputations(Layout layout) {
    for (const Recomputed recomputed : {Recomputed::kNone, Recomputed::kProducts, Recomputed::kFull}) {
      if (!allowed(space_.recomputed, recomputed)) continue;
      layout.recomputed = recomputed;
      for (const Offload offload :
           {Offload::kNone, Offload::kOptimizer, Offload::kOptimizerAndParams, Offload::kNvme}) {
        if (!allowed(space_.offload, offload)) continue;
        if (offload > Offload::kOptimizer && layout.stage != 3) continue;
        if (offload == Offload::kNvme && cluster_.nvme_read == 0) continue;
        layout.offload = offload;
        consider(layout);
      }
    }
  }

  bool fits(const LayoutMemory& memory) const {
    const double free = 1 - space_.margin;
    return memory.total() <= free * cluster_.device.memory_bytes && memory.host <= free * cluster_.host_memory_bytes;
  }

  void consider(const Layout& layout) {
    ++result_.tried;
    const LayoutMemory memory = layout_memory(cluster_, work_, layout);
    const double bytes = memory.total();
    if (!fits(memory)) {
      if (!smallest_ || bytes < smallest_->bytes) smallest_ = Scored{0, bytes, layout};
      return;
    }
    ++result_.fitting;
    const Scored scored{layout_time(cluster_, work_, layout).total(), bytes, layout};
    if (runs_here(layout) && (!runnable_ || scored.seconds < runnable_->seconds)) runnable_ = scored;
    keep_best(scored);
    keep_frontier(scored);
  }

  void keep_best(const Scored& scored) {
    const auto slower = [](const Scored& a, const Scored& b) { return a.key() < b.key(); };
    if (best_.size() == space_.keep) {
      if (scored.key() >= best_.front().key()) return;
      std::ranges::pop_heap(best_, slower);
      best_.pop_back();
    }
    best_.push_back(scored);
    std::ranges::push_heap(best_, slower);
  }

  void keep_frontier(const Scored& scored) {
    for (const Scored& other : frontier_)
      if (other.seconds <= scored.seconds && other.bytes <= scored.bytes) return;
    std::erase_if(frontier_,
                  [&](const Scored& other) { return other.seconds >= scored.seconds && other.bytes >= scored.bytes; });
    frontier_.push_back(scored);
  }

  Candidate detail(const Layout& layout) const {
    Candidate out{.layout = layout,
                  .memory = layout_memory(cluster_, work_, layout),
                  .time = layout_time(cluster_, work_, layout),
                  .speed = {},
                  .why = {}};
    out.speed = throughput(cluster_, work_, layout, out.time.total());
    return out;
  }

  static void explain(const Candidate& best, Candidate& other) {
    struct Part {
      const char* name;
      double more;
    };
    const LayoutTime &a = best.time, &b = other.time;
    const std::array parts = {
        Part{"more recomputation", b.recompute - a.recompute},
        Part{"more tensor-parallel traffic", b.tensor_traffic - a.tensor_traffic},
        Part{"a larger pipeline bubble", b.bubble - a.bubble},
        Part{"more exposed data-parallel traffic", b.data_traffic - a.data_traffic},
        Part{"more traffic between pipeline ranks", b.pipeline_traffic - a.pipeline_traffic},
        Part{"a slower update", b.update - a.update},
        Part{"smaller, less efficient products",
             (b.compute - b.recompute - b.tensor_traffic) - (a.compute - a.recompute - a.tensor_traffic)}};
    const Part& most = *std::ranges::max_element(parts, {}, &Part::more);
    const double percent = 100 * (b.total() / a.total() - 1);
    std::ostringstream text;
    text.precision(2);
    if (percent < 0.05) {
      other.why = "as fast";
      return;
    }
    text << "+" << percent << " %: " << most.name << " (+" << 1000 * most.more << " ms)";
    other.why = text.str();
  }

  const ClusterSpec& cluster_;
  const Workload& work_;
  const SearchSpace& space_;
  SearchResult result_;
  std::vector<Scored> best_, frontier_;
  std::optional<Scored> smallest_, runnable_;
};

}  // namespace

SearchResult search_layouts(const ClusterSpec& cluster, const Workload& work, const SearchSpace& space) {
  INTARSIA_CHECK(kConfig, space.devices >= 1 && space.global_batch >= 1, "a search over ", space.devices,
                 " devices and ", space.global_batch, " samples; each must be at least 1");
  INTARSIA_CHECK(kConfig, space.margin >= 0 && space.margin < 1, "--margin ", space.margin, "; allowed: 0 to below 1");
  return Search(cluster, work, space).run();
}

std::string not_runnable_here(const Layout& layout) {
  std::vector<std::string> missing;
  if (layout.tensor > 1) missing.emplace_back("tensor parallel");
  if (layout.pipeline > 1) missing.emplace_back("pipeline");
  if (layout.offload != Offload::kNone) missing.emplace_back("offload");
  if (layout.recomputed == Recomputed::kScores || layout.recomputed == Recomputed::kHalf)
    missing.emplace_back("recomputation of scores or of half the products");
  return missing.empty() ? "" : "not runnable here yet: " + join(missing);
}

std::vector<std::string> rule_of_thumb(const ClusterSpec& cluster, const Workload& work, const SearchSpace& space) {
  struct Step {
    const char* name;
    int stage;
    Recomputed recomputed;
    Offload offload;
  };
  constexpr std::array kLadder = {Step{"stage 2", 2, Recomputed::kNone, Offload::kNone},
                                  Step{"stage 3", 3, Recomputed::kNone, Offload::kNone},
                                  Step{"stage 3, blocks recomputed", 3, Recomputed::kFull, Offload::kNone},
                                  Step{"and the optimizer in host memory", 3, Recomputed::kFull, Offload::kOptimizer},
                                  Step{"and the parameters", 3, Recomputed::kFull, Offload::kOptimizerAndParams},
                                  Step{"and both on NVMe", 3, Recomputed::kFull, Offload::kNvme}};
  const double limit = (1 - space.margin) * cluster.device.memory_bytes;
  std::vector<std::string> lines;
  for (const Step& step : kLadder) {
    const int samples = static_cast<int>(std::max<std::int64_t>(1, space.global_batch / space.devices));
    const int micro_batch = space.micro_batch.value_or(1);
    const Layout layout{.shard = space.devices,
                        .stage = step.stage,
                        .micro_batch = micro_batch,
                        .accumulation = std::max(1, samples / micro_batch),
                        .recomputed = step.recomputed,
                        .offload = step.offload};
    const LayoutMemory memory = layout_memory(cluster, work, layout);
    const bool fits = memory.total() <= limit && memory.host <= (1 - space.margin) * cluster.host_memory_bytes;
    const std::string missing = not_runnable_here(layout);
    lines.push_back(
        concat(step.name, ": ", format_bytes(static_cast<std::int64_t>(memory.total())), " of ",
               format_bytes(static_cast<std::int64_t>(limit)),
               memory.host > 0 ? concat(", host ", format_bytes(static_cast<std::int64_t>(memory.host))) : "",
               fits ? ": fits" : ": does not fit", missing.empty() ? "" : concat(" (", missing, ")")));
    if (fits) break;
  }
  return lines;
}

}  // namespace intarsia::plan
