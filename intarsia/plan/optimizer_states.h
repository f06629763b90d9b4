// The tensors that an optimizer keeps for each parameter, and where their elements lie in a rank's memory. The
// optimizers, the planner's memory figures and the checkpoint's list of tensors all follow from this.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "intarsia/plan/run_plan.h"

namespace intarsia::plan {

// What a stored tensor is of its parameter.
enum class TensorKind {
  kMaster,    // the truth of a trainable parameter
  kWeight,    // a frozen parameter, in the dtype it is computed with
  kExpAvg,    // first moment: Adam, LAMB, Lion
  kExpAvgSq,  // second moment: Adam, LAMB
  kMomentum,  // SGD, Muon
  kSum,       // Adagrad: sum of squares
  kRowVar,    // Adafactor: mean squares of rows and columns of a matrix
  kColVar,    //
  kVariance,  // Adafactor: second moment of what is no matrix
  kEma,       // moving average of the weights
};
inline constexpr TensorKind kTensorKinds[] = {
    TensorKind::kMaster, TensorKind::kWeight, TensorKind::kExpAvg, TensorKind::kExpAvgSq, TensorKind::kMomentum,
    TensorKind::kSum,    TensorKind::kRowVar, TensorKind::kColVar, TensorKind::kVariance, TensorKind::kEma};
// "master", "weight", "exp_avg", "exp_avg_sq", "momentum_buffer", "sum", "row_var", "col_var", "variance", "ema".
std::string_view kind_name(TensorKind kind);

// One state tensor of one parameter.
struct StateSpec {
  TensorKind kind = TensorKind::kExpAvg;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape = {};  // logical
  bool owned = false;  // lies whole at one rank, the parameter's owner; else it is cut as the parameter is
};

// The state tensors of `param`; none when it is frozen.
std::vector<StateSpec> state_specs(const OptimizerPlan& optimizer, const ParamSpec& param);

// Whether the update needs the parameter's gradient as one matrix: Adafactor from two dimensions on; Muon too, except
// embeddings and heads (a name with "embed" or "lm_head"), as in DeepSpeed.
bool updates_matrix(const OptimizerPlan& optimizer, const ParamSpec& param);

// For each parameter of the model the rank that computes its matrix update, among those that hold one copy of the
// optimizer's state between them (each shard group has an owner of its own); by falling size to the rank with the least
// so far; -1 where the update is no matrix's.
std::vector<int> matrix_owners(const RunPlan& plan);

// Elements [elements.begin, elements.end) of the state tensor of one slot stand at [begin, ...) of the rank's buffer.
struct StateSlot {
  Range elements = {};
  std::int64_t begin = 0;
};

// What one rank keeps of one kind of one flat buffer.
struct StateBuffer {
  TensorKind kind = TensorKind::kExpAvg;
  DType dtype = DType::kF32;
  std::int64_t numel = 0;
  std::vector<StateSlot> slots = {};  // by slot of the layout; empty elements where the rank has none
};

// The buffers of rank `shard` (nothing: of a rank that holds everything) of one trainable flat buffer. A kind that
// every parameter has lies over the rank's range as the master does, padding included; others are packed.
std::vector<StateBuffer> state_buffers(const RunPlan& plan, const FlatLayout& layout, const std::vector<int>& owners,
                                       std::optional<int> shard);

// Bytes of all state tensors of the rank that has most.
std::int64_t optimizer_state_bytes(const RunPlan& plan);

}  // namespace intarsia::plan
