// The calls by which a model tells an engine that a unit begins and ends. Implemented by shard; the only upward call of
// the model side.
#pragma once

namespace intarsia::nn {

// The order of one pass with gradients is, for each entry of a unit: pre_forward, post_forward, ..., pre_backward,
// post_backward; entries nest in backward as they did in forward. Passes without gradients have no backward calls.
// Units inside a recomputed piece of several units run their forward once more during backward: pre_forward,
// post_forward (without backward), before the gradients of the piece's last unit are computed. All ranks make the same
// calls in the same order.
class UnitEvents {
 public:
  virtual ~UnitEvents() = default;
  // The unit's parameters are about to be read: they must be whole when this returns.
  virtual void pre_forward(int unit) = 0;
  // They will not be read again in this entry's forward. `needs_backward`: whether a backward of this entry will come.
  virtual void post_forward(int unit, bool needs_backward) = 0;
  virtual void pre_backward(int unit) = 0;
  // All gradients of this entry have been accumulated.
  virtual void post_backward(int unit) = 0;
};

}  // namespace intarsia::nn
