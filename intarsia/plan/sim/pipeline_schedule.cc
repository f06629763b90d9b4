#include "intarsia/plan/sim/pipeline_schedule.h"

#include <algorithm>
#include <array>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::plan {
namespace {

using Actions = std::vector<PipelineAction>;
constexpr std::array kNames{"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"};

Actions gpipe(int micro_batches) {
  Actions out;
  for (int m = 0; m < micro_batches; ++m) out.push_back({PipelineOp::kForward, m, 0});
  for (int m = 0; m < micro_batches; ++m) out.push_back({PipelineOp::kBackward, m, 0});
  return out;
}

Actions one_f_one_b(int ranks, int rank, int micro_batches) {
  Actions out;
  const int warm_up = std::min(ranks - rank - 1, micro_batches);
  for (int m = 0; m < warm_up; ++m) out.push_back({PipelineOp::kForward, m, 0});
  for (int m = warm_up; m < micro_batches; ++m) {
    out.push_back({PipelineOp::kForward, m, 0});
    out.push_back({PipelineOp::kBackward, m - warm_up, 0});
  }
  for (int m = micro_batches - warm_up; m < micro_batches; ++m) out.push_back({PipelineOp::kBackward, m, 0});
  return out;
}

// Groups of `ranks` micro-batches walk through chunk 0, then chunk 1, ...; backward mirrors the chunks.
Actions interleaved(int ranks, int rank, int micro_batches, int chunks) {
  const int total = micro_batches * chunks;
  const auto action = [&](int index, bool forward) {
    const int group = index / (ranks * chunks), in_group = index % (ranks * chunks);
    const int chunk = in_group / ranks;
    return PipelineAction{forward ? PipelineOp::kForward : PipelineOp::kBackward, group * ranks + in_group % ranks,
                          forward ? chunk : chunks - 1 - chunk};
  };
  const int warm_up = std::min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, total);
  Actions out;
  for (int i = 0; i < warm_up; ++i) out.push_back(action(i, true));
  for (int i = warm_up; i < total; ++i) {
    out.push_back(action(i, true));
    out.push_back(action(i - warm_up, false));
  }
  for (int i = total - warm_up; i < total; ++i) out.push_back(action(i, false));
  return out;
}

// 1F1B with backward in halves; rank r does its weight halves r micro-batches late, in what would be bubbles.
Actions zero_bubble_h1(int ranks, int rank, int micro_batches) {
  Actions out;
  const int warm_up = std::min(ranks - rank - 1, micro_batches);
  int weights = 0;
  const auto backward = [&](int m) {
    out.push_back({PipelineOp::kInputGrad, m, 0});
    if (m >= rank) out.push_back({PipelineOp::kWeightGrad, weights++, 0});
  };
  for (int m = 0; m < warm_up; ++m) out.push_back({PipelineOp::kForward, m, 0});
  for (int m = warm_up; m < micro_batches; ++m) {
    out.push_back({PipelineOp::kForward, m, 0});
    backward(m - warm_up);
  }
  for (int m = micro_batches - warm_up; m < micro_batches; ++m) backward(m);
  while (weights < micro_batches) out.push_back({PipelineOp::kWeightGrad, weights++, 0});
  return out;
}

// The order of each chunk's operations is fixed; this writes the interleaving of the two.
class ZeroBubbleV {
 public:
  explicit ZeroBubbleV(int micro_batches) : micro_batches_(micro_batches) {}

  Actions of(int ranks, int rank) {
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) forward(0);
    for (int i = 0; i < rank; ++i) {
      forward(1);
      forward(0);
    }
    for (int i = 0; i < ranks - rank; ++i) {
      forward(1);
      backward(1);
      weight(1);
    }
    while (forwards_[1] < forwards_[0] || forwards_[0] < micro_batches_) {
      forward(0);
      backward(0);
      weight(0);
      forward(1);
      backward(1);
      weight(1);
    }
    for (int i = 0; i < rank; ++i) {
      backward(0);
      backward(1);
    }
    for (int i = 0; i < ranks - rank; ++i) {
      backward(0);
      weight(0);
    }
    while (weights_[1] < micro_batches_) weight(1);
    while (weights_[0] < micro_batches_) weight(0);
    return out_;
  }

 private:
  void add(PipelineOp op, int chunk, std::array<int, 2>& done) {
    int& count = done[static_cast<std::size_t>(chunk)];
    if (count < micro_batches_) out_.push_back({op, count++, chunk});
  }
  void forward(int chunk) { add(PipelineOp::kForward, chunk, forwards_); }
  void backward(int chunk) { add(PipelineOp::kInputGrad, chunk, inputs_); }
  void weight(int chunk) {
    if (weights_[static_cast<std::size_t>(chunk)] < inputs_[static_cast<std::size_t>(chunk)])
      add(PipelineOp::kWeightGrad, chunk, weights_);
  }

  int micro_batches_;
  Actions out_;
  std::array<int, 2> forwards_{}, inputs_{}, weights_{};
};

}  // namespace

const char* schedule_name(PipelineSchedule schedule) { return kNames[static_cast<std::size_t>(schedule)]; }

PipelineSchedule schedule_of_name(const std::string& name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<PipelineSchedule>(i);
  fail(ErrorKind::kUsage, "pipeline schedule ", printable(name),
       "; allowed: ", join(std::vector<std::string>(kNames.begin(), kNames.end())));
}

int PipelinePlan::place_of_chunk(int rank, int chunk) const {
  if (schedule == PipelineSchedule::kZeroBubbleV) return chunk == 0 ? rank : 2 * ranks - 1 - rank;
  return chunk * ranks + rank;
}

std::pair<int, int> PipelinePlan::owner_of_place(int place) const {
  if (schedule == PipelineSchedule::kZeroBubbleV)
    return place < ranks ? std::pair{place, 0} : std::pair{2 * ranks - 1 - place, 1};
  return {place % ranks, place / ranks};
}

PipelinePlan make_pipeline(PipelineSchedule schedule, int ranks, int micro_batches, int chunks) {
  INTARSIA_CHECK(kConfig, ranks >= 1 && micro_batches >= 1 && chunks >= 1, "a pipeline of ", ranks, " ranks, ",
                 micro_batches, " micro-batches and ", chunks, " chunks; each must be at least 1");
  PipelinePlan plan{.schedule = schedule, .ranks = ranks, .chunks = 1, .micro_batches = micro_batches, .actions = {}};
  if (schedule == PipelineSchedule::kInterleaved) {
    plan.chunks = chunks;
    INTARSIA_CHECK(kConfig, micro_batches % ranks == 0, "interleaved: ", micro_batches,
                   " micro-batches are not a multiple of ", ranks, " pipeline ranks");
  }
  if (schedule == PipelineSchedule::kZeroBubbleV) {
    plan.chunks = 2;
    INTARSIA_CHECK(kConfig, micro_batches >= 2 * ranks - 1, "zbv: ", micro_batches,
                   " micro-batches are fewer than 2 x ", ranks, " - 1");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    switch (schedule) {
      case PipelineSchedule::kGpipe:
        plan.actions.push_back(gpipe(micro_batches));
        break;
      case PipelineSchedule::kOneFOneB:
        plan.actions.push_back(one_f_one_b(ranks, rank, micro_batches));
        break;
      case PipelineSchedule::kInterleaved:
        plan.actions.push_back(interleaved(ranks, rank, micro_batches, chunks));
        break;
      case PipelineSchedule::kZeroBubbleH1:
        plan.actions.push_back(zero_bubble_h1(ranks, rank, micro_batches));
        break;
      case PipelineSchedule::kZeroBubbleV:
        plan.actions.push_back(ZeroBubbleV(micro_batches).of(ranks, rank));
        break;
    }
  }
  return plan;
}

}  // namespace intarsia::plan
