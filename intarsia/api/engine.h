// Trains anybody's torch::nn module, sharded over ranks, in the manner of deepspeed.initialize:
//
//   auto engine = intarsia::initialize(model, "ds_config.json");
//   for (...) {                                      // micro-steps; all ranks make the same calls
//     const at::Tensor loss = loss_of(engine.forward(x), y);
//     engine.backward(loss);
//     engine.step();                                 // on every micro-step; updates at the window's end
//   }
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "intarsia/api/assemble.h"
#include "intarsia/checkpoint/manifest.h"
#include "intarsia/nn/module_unit.h"
#include "intarsia/optim/update.h"

namespace intarsia::api {

// Keeps parameters readable outside their units, for a look at them: all of the module, or of one unit. Values are in
// the compute dtype; what is written to them is lost. Collective: all ranks make and end it alike, and run nothing else
// of the engine in between but forward passes without gradients. Memory: in stage 3 without mapped memory the gathered
// units.
class WholeParameters {
 public:
  WholeParameters(shard::Engine& engine, std::vector<int> units);
  ~WholeParameters();
  WholeParameters(const WholeParameters&) = delete;
  WholeParameters& operator=(const WholeParameters&) = delete;

 private:
  shard::Engine& engine_;
  std::vector<int> units_;
};

// The part of Engine<M> that does not depend on the module's type. From its making to its end the module's parameters
// belong to it: their tensors stay the same, but they are readable only inside their units (stage 3), have the compute
// dtype, and must not be replaced; gradients are taken from them as soon as they are there (`grad()` stays undefined).
// After the engine's end they have no memory.
// Collective: all ranks make the same calls in the same order. Threads: one thread a rank.
// Errors: besides those named, kUsage for calls out of order; kComm when another rank failed or did something else.
class ModuleEngine {
 public:
  ModuleEngine(std::shared_ptr<torch::nn::Module> module, const Config& config, const Options& options);
  ~ModuleEngine();
  ModuleEngine(const ModuleEngine&) = delete;
  ModuleEngine& operator=(const ModuleEngine&) = delete;

  int rank() const { return axis().rank(); }
  int ranks() const { return axis().size(); }
  at::ScalarType dtype() const;                                        // of parameters in forward and backward
  std::int64_t micro_batch_size() const { return micro_batch_size_; }  // of the configuration; samples of one rank
  std::int64_t accumulation() const { return plan().accumulation; }    // micro-steps of a window
  const plan::RunPlan& plan() const { return *assembly_.plan; }

  // A window's micro-batches, those of all ranks, are numbered; this is the number of the one that this rank runs now.
  // A program that gives micro-batch k of a batch to whoever asks for it trains alike on any number of ranks.
  std::int64_t micro_batch() const { return plan().logical_order().index(rank(), micro_step_); }
  std::int64_t micro_batches() const { return accumulation() * ranks(); }
  // The sum over ranks of what each says, in rank order.
  double sum(double mine);

  // Runs body(inputs...) as the unit that `part` (a module that the policy took, or its path) is, and returns what it
  // returns: for methods other than forward, and modules that are not Unit<M>. See nn::call_unit.
  template <typename Part, typename Body, typename... Inputs>
  auto run(const Part& part, Body&& body, Inputs&&... inputs) {
    return nn::call_unit(assembly_.engine.get(), unit_of(part), std::forward<Body>(body),
                         std::forward<Inputs>(inputs)...);
  }

  // The backward of a micro-step. `loss`: a scalar, the mean over this rank's micro-batch; gradients become means over
  // ranks and micro-steps, each counting alike. Source: DeepSpeed, engine.backward.
  void backward(const at::Tensor& loss);
  // `loss_sum`: the sum over `num_targets` targets of this rank's micro-batch (0 and a loss of 0 for a rank without
  // data); gradients become means over all targets of the window. Errors: kUsage when a window has both forms.
  void backward(const at::Tensor& loss_sum, std::int64_t num_targets);

  // Ends a micro-step. At the window's end (every accumulation() calls) gradients are reduced and clipped and the
  // parameters updated. Returns whether it was the window's end. A loss or norm that is not finite updates nothing.
  bool step();
  bool is_window_end() const { return micro_step_ + 1 == accumulation(); }
  // Of the last window: loss (mean over the window, all ranks), grad_norm before clipping, lr, skipped, ...
  const optim::StepResult& last_step() const { return last_step_; }
  std::int64_t steps() const { return progress_.step; }  // windows so far, skipped ones included

  // A parameter's value in fp32 (trainable ones: the master), full shape, on every rank. Errors: kUsage for a name that
  // the module does not have. Memory: the flat buffers of its unit in fp32.
  at::Tensor gather(const std::string& name);
  // Parameters readable until the result's end; `unit`: one unit only.
  WholeParameters whole();
  WholeParameters whole(const std::string& unit);

  // Saves DIR/step-N: weights, optimizer state, steps; between windows. `data_position` is the program's own and comes
  // back from load(). Returns the checkpoint's path. See checkpoint::save_checkpoint for what may fail.
  std::string save(const std::string& dir, std::int64_t data_position = 0);
  struct Loaded {
    std::string path;
    std::int64_t steps = 0;
    std::int64_t data_position = 0;
  };
  // The newest complete checkpoint of `dir`, saved on any number of ranks in any stage; nothing when there is none.
  std::optional<Loaded> load(const std::string& dir);

 protected:
  shard::Engine& shard_engine() { return *assembly_.engine; }
  void start_forward();

 private:
  comm::Communicator& axis() const { return assembly_.engine->world(); }
  int unit_of(const std::string& name) const;
  int unit_of(const torch::nn::Module& module) const;
  template <typename Holder>
  int unit_of(const torch::nn::ModuleHolder<Holder>& holder) const {
    return unit_of(static_cast<const torch::nn::Module&>(*holder));
  }
  enum class Counting { kNone, kMicroSteps, kTargets };
  void add(const at::Tensor& loss, std::int64_t targets, Counting counting);
  void log() const;
  std::optional<nn::RecomputeOptions> recompute_of(const std::string& unit) const;

  std::shared_ptr<torch::nn::Module> module_;  // lives as long as its units refer to the engine
  Assembly assembly_;
  std::int64_t micro_batch_size_ = 1;
  std::int64_t micro_step_ = 0;  // ended in this window
  bool has_backward_ = false;    // in this micro-step
  Counting counting_ = Counting::kNone;
  optim::WindowSums sums_;
  optim::StepResult last_step_;
  checkpoint::Progress progress_;
  int exceptions_ = 0;  // in flight when this object was made
};

template <typename M>
class Engine : public ModuleEngine {
 public:
  Engine(std::shared_ptr<M> module, const Config& config, const Options& options = {})
      : ModuleEngine(module, config, options), module_(std::move(module)) {}

  M& module() { return *module_; }
  // M::forward(arguments...), as the root unit.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    start_forward();
    return nn::call_unit(
        &shard_engine(), 0, [this](auto&... watched) { return module_->forward(watched...); },
        std::forward<Arguments>(arguments)...);
  }

 private:
  std::shared_ptr<M> module_;
};

// Makes an engine of a module: a shared_ptr, or a holder such as torch::nn::Sequential. Its values are those of rank 0;
// parameters on the meta device are filled by the seed and their names, the same on any number of ranks.
// Collective. Memory: by docs/memory.md; while it is made, the module beside what has been filled.
// Errors: those of the configuration, all at once, and of nn::inspect, before memory is taken.
template <typename M>
Engine<M> initialize(std::shared_ptr<M> module, const Config& config, const Options& options = {}) {
  return Engine<M>(std::move(module), config, options);
}
template <typename M>
Engine<M> initialize(const torch::nn::ModuleHolder<M>& module, const Config& config, const Options& options = {}) {
  return Engine<M>(module.ptr(), config, options);
}

}  // namespace intarsia::api
