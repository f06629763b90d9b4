// The operations of one micro-step of a Llama, as models/llama/llama.cc runs them, with ghosts.
#pragma once

#include <functional>

#include "intarsia/formats/hf_config.h"
#include "intarsia/plan/memory/ghost.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::plan {

// What the engine does around a unit's forward and backward: nn::UnitEvents, and the reducer that takes gradients.
class GhostEvents {
 public:
  virtual ~GhostEvents() = default;
  virtual void pre_forward(int unit) = 0;
  virtual void post_forward(int unit, bool needs_backward) = 0;
  virtual void pre_backward(int unit) = 0;
  virtual void post_backward(int unit) = 0;
  // `gradient` of parameter `param` is there; it is freed afterwards.
  virtual void take_gradient(int param, const Ghost& gradient) = 0;
};

struct GhostBatch {
  std::int64_t samples = 1;
  std::int64_t length = 1;
};

// Forward, loss and, when `train`, backward of one micro-batch, booked to the tape's ledger.
void run_llama_micro_step(GhostTape& tape, Ledger& ledger, GhostEvents& events, const formats::HfConfig& config,
                          const RunPlan& plan, const GhostBatch& batch, bool train = true);

}  // namespace intarsia::plan
