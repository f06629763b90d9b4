// The operations of one micro-step of a model, as models/ runs them, with ghosts. What families share is here;
// llama_ghost.cc stands beside models/llama/llama.cc and gpt2_ghost.cc beside models/gpt2/gpt2.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  bool isolated = false;       // samples hold several documents, none of which sees another
  bool adapters_drop = false;  // adapters have dropout
};

// Where a model's ghosts go, and whose they are. All outlive it.
struct GhostRun {
  GhostTape& tape;
  Ledger& ledger;
  GhostEvents& events;
  const formats::HfConfig& config;
  const RunPlan& plan;
  GhostBatch batch;
};

class GhostModel {
 public:
  explicit GhostModel(const GhostRun& run);
  virtual ~GhostModel() = default;
  GhostModel(const GhostModel&) = delete;
  GhostModel& operator=(const GhostModel&) = delete;

  // The whole forward of a micro-batch: Model::loss_sum.
  Ghost loss_sum();

 protected:
  virtual std::string embedding_name() const = 0;                // of the parameter that a tied head reads too
  virtual std::string norm_name() const = 0;                     // of a parameter of the final norm
  virtual std::string block_name(std::int64_t layer) const = 0;  // of a parameter of the block
  virtual Ghost embed() = 0;
  virtual Ghost final_norm(const Ghost& x) = 0;
  // `stops`: a second run ends once the last product's inputs are saved.
  virtual Ghost block(std::int64_t layer, const Ghost& x, bool stops) = 0;

  // nn/functions.h:has_kernels.
  bool has_kernels() const {
    return plan_.device == DeviceKind::kCpu && plan_.compute_dtype != DType::kF16 && !plan_.autocast;
  }
  int param(const std::string& name) const;
  Ghost leaf(const std::string& name) { return leaf(param(name)); }
  Ghost leaf(int index);
  // x [rows, in] by the weight `name`.weight, and `name`.bias and an adapter where the model has them. `stops`: as of
  // block(), whose last product is this one's.
  Ghost linear(const std::string& name, const Ghost& x, bool stops = false);

  GhostTape& tape_;
  const formats::HfConfig& config_;
  const RunPlan& plan_;
  GhostBatch batch_;
  std::int64_t rows_;

 private:
  using Forward = std::function<Ghost(const Ghost&)>;
  const ParamSpec& spec(int index) const { return plan_.model.params[static_cast<std::size_t>(index)]; }
  int unit_of(int index) const { return spec(index).unit; }
  int unit_of_layer(std::int64_t layer) const { return unit_of(param(block_name(layer))); }
  const std::string& unit_name(int unit) const { return plan_.model.units[static_cast<std::size_t>(unit)].name; }
  // The result of the `head` of the last norm's result and the head's weight.
  Ghost run(const std::function<Ghost(const Ghost& normed, int weight)>& head);
  Ghost logits_of(const Ghost& normed, int weight);
  Ghost loss_of(const Ghost& logits);
  Ghost fused_loss_of(const Ghost& normed, int weight);
  Ghost run_unit(int unit, const Ghost& input, const Forward& forward);
  Ghost run_recomputed(std::int64_t begin, std::int64_t end, const Ghost& input);
  Ghost backward_recomputed(std::int64_t begin, std::int64_t end, const Ghost& input, std::vector<Ghost>& products,
                            const Ghost& grad);

  Ledger& ledger_;
  GhostEvents& events_;
};

std::unique_ptr<GhostModel> make_llama_ghost(const GhostRun& run);
std::unique_ptr<GhostModel> make_gpt2_ghost(const GhostRun& run);

// Forward, loss and, when `train`, backward of one micro-batch, booked to the tape's ledger.
void run_micro_step(const GhostRun& run, bool train = true);

// Bytes that the model keeps from one forward to the next: tables of rotation, a window's mask.
std::int64_t model_table_bytes(const formats::HfConfig& config, const RunPlan& plan, bool isolated);

}  // namespace intarsia::plan
