// The tensors that a plan's checkpoint consists of. Internal to checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/checkpoint/manifest.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/plan/run_plan.h"
#include "intarsia/shard/engine.h"

namespace intarsia::checkpoint {

// Everything that a checkpoint of `plan` holds, with the piece that each rank's file has of it.
std::vector<StoredTensor> stored_tensors(const plan::RunPlan& plan);

// A run of elements of one stored tensor in this rank's memory.
struct LocalPiece {
  const plan::ParamSpec* param = nullptr;
  TensorKind kind = TensorKind::kMaster;
  plan::Range elements;  // of the parameter
  at::Tensor values;     // [elements.size()], a view

  std::string stored_name() const { return concat(kind_name(kind), ".", param->name); }
};

enum class Part {
  kShard,  // this rank's shard, which it alone saves
  kHeld,   // all that this rank must write to be up to date: with replicas more than its shard
};

// In the order of the flat buffers; parameters of which this rank has nothing are left out.
std::vector<LocalPiece> local_pieces(shard::Engine& engine, optim::Optimizer& optimizer, Part part);

}  // namespace intarsia::checkpoint
