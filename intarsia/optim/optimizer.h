// What all optimizers have in common: the pieces of the flat buffers that this rank updates, the state tensors beside
// them, the count of updates, and the moving average of the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "intarsia/comm/data_axes.h"
#include "intarsia/plan/optimizer_states.h"
#include "intarsia/shard/flat_state.h"

namespace intarsia::optim {

// What one rank updates of one parameter; never empty.
struct Piece {
  std::size_t flat = 0;         // index into the states
  std::size_t slot = 0;         // index into the layout's slots
  int param = 0;                // index into ModelSpec::params
  plan::Range elements;         // of the parameter
  std::int64_t flat_begin = 0;  // where elements.begin lies in the flat buffer
};

// Consecutive elements of a piece in fp32, whatever the dtypes at rest.
struct Chunk {
  float* param = nullptr;
  const float* grad = nullptr;
  std::array<float*, 2> state{};  // in the order in which the kinds were asked for
  std::int64_t numel = 0;
  std::int64_t begin = 0;  // of the first element within the piece
};

// The same as tensors [n] on the run's device, fp32.
struct DeviceChunk {
  at::Tensor param, grad;
  std::vector<at::Tensor> state;  // in the order in which the kinds were asked for
};

// The scalars of one update of one parameter.
struct Rates {
  double lr = 0;
  double beta1 = 0;
  double weight_decay = 0;
  std::int64_t update = 1;  // counted from 1
  float grad_scale = 1;     // gradients are multiplied by it first: averaging, unscaling and clipping in one
};

// Threads: the engine's thread.
class Optimizer {
 public:
  // `plan`, `states` and the communicators of `axes` must outlive it. The state tensors are
  // zeros (Adagrad's sum: its initial value; the average: the weights).
  Optimizer(const plan::RunPlan& plan, std::vector<shard::FlatState>& states, const comm::DataAxes& axes);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update: masters and state tensors from the gradients times `grad_scale`. `lr` is this update's rate.
  // Collective over axis() for LAMB, Adafactor and Muon where state is sharded; purely local for the others. Frozen
  // parameters and those without elements cost nothing.
  void step(double lr, double grad_scale);

  // Applied updates so far: k of the bias correction and the position in the schedule.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  // A state tensor of this rank: [layout.numel], of the layout's dtype.
  struct StateTensor {
    plan::StateBuffer layout;
    at::Tensor values;
  };
  // The moving average of the weights of one trainable flat buffer, whole, on every rank.
  // Collective over all ranks. Memory: the flat buffer once in fp32. REQUIRES: ema_decay > 0.
  at::Tensor gather_average(std::size_t flat) const;
  // Those of one flat buffer; none when it is frozen.
  const std::vector<StateTensor>& tensors(std::size_t flat) const { return tensors_[flat]; }

 protected:
  virtual void update() = 0;

  const plan::RunPlan& plan() const { return plan_; }
  const plan::OptimizerPlan& options() const { return plan_.optimizer; }
  // The ranks that hold one copy of the optimizer's state between them: a shard group, or all.
  comm::Communicator& axis() const {
    return plan_.placement.optimizer == plan::Rest::kSharded ? axes_.shard : axes_.world;
  }
  bool sharded() const { return plan_.placement.optimizer != plan::Rest::kReplicated && axis().size() > 1; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // The piece of a slot of which this rank updates something.
  const Piece& piece_of(std::size_t flat, std::size_t slot) const { return pieces_[piece_index_[flat][slot]]; }
  const plan::ParamSpec& spec(const Piece& piece) const {
    return plan_.model.params[static_cast<std::size_t>(piece.param)];
  }
  Rates rates(int param) const;

  // What this rank has of one state tensor of one slot; undefined when it has nothing.
  at::Tensor state(std::size_t flat, std::size_t slot, plan::TensorKind kind) const;

  using Kinds = std::vector<plan::TensorKind>;  // at most two
  // Hands a piece over in chunks, with its states of these kinds, and keeps what `use` writes. `blocks`: a chunk is
  // what the piece has of one block of plan::kShardBlock elements of the flat buffer, the same in every layout.
  // Tensors of a device pass through host memory, 1 Mi elements at a time.
  void for_each_chunk(const Piece& piece, const Kinds& kinds, bool blocks,
                      const std::function<void(const Chunk&)>& use) const;
  // The same on the device; the host reads nothing. Elementwise, so chunks are cut anywhere.
  void for_each_device_chunk(const Piece& piece, const Kinds& kinds,
                             const std::function<void(const DeviceChunk&)>& use) const;

 private:
  // Master, gradient and states of these kinds of a piece.
  std::vector<at::Tensor> tensors_of(const Piece& piece, const Kinds& kinds) const;

  const plan::RunPlan& plan_;
  std::vector<shard::FlatState>& states_;
  comm::DataAxes axes_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<std::size_t>> piece_index_;  // by flat buffer and slot
  std::vector<std::vector<StateTensor>> tensors_;      // by flat buffer
  std::int64_t updates_ = 0;
  double lr_ = 0;  // of the update under way
  double beta1_ = 0;
  float grad_scale_ = 1;
};

// The optimizer that the plan asks for.
std::unique_ptr<Optimizer> make_optimizer(const plan::RunPlan& plan, std::vector<shard::FlatState>& states,
                                          const comm::DataAxes& axes);

}  // namespace intarsia::optim
