#include "intarsia/checkpoint/inventory.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace intarsia::checkpoint {
namespace {

using plan::ParamSlot;
using plan::Range;
using shard::FlatState;

// Adds the pieces of one buffer that lie in `range` of the flat buffer; `values` holds `holds`.
void add_pieces(const plan::RunPlan& plan, const plan::FlatLayout& layout, TensorKind kind, Range range,
                const at::Tensor& values, Range holds, std::vector<LocalPiece>& pieces) {
  for (const ParamSlot& slot : layout.slots) {
    const Range elements = plan::param_range(slot, range);
    if (elements.size() == 0) continue;
    const Range flat{slot.offset + elements.begin, slot.offset + elements.end};
    pieces.push_back({.param = &plan.model.params[static_cast<std::size_t>(slot.param)],
                      .kind = kind,
                      .elements = elements,
                      .values = FlatState::piece(values, holds, flat)});
  }
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const plan::RunPlan& plan) {
  const std::vector<int> owners = plan::matrix_owners(plan);
  std::vector<StoredTensor> tensors;
  for (const plan::FlatLayout& layout : plan.flats) {
    for (const ParamSlot& slot : layout.slots) {
      const auto index = static_cast<std::size_t>(slot.param);
      const plan::ParamSpec& param = plan.model.params[index];
      std::vector<StoredPiece> pieces;
      for (int piece = 0; piece < layout.num_shards; ++piece) {
        const Range elements = plan::param_range(slot, layout.shard(piece));
        const auto file = static_cast<std::size_t>(plan.grid().rank_of_piece(piece));
        if (elements.size() > 0) pieces.push_back({file, elements});
      }
      tensors.push_back({.name = param.name,
                         .kind = layout.trainable ? TensorKind::kMaster : TensorKind::kWeight,
                         .dtype = layout.trainable ? plan.master_dtype : plan.compute_dtype,
                         .shape = param.shape,
                         .pieces = pieces});
      for (const plan::StateSpec& spec : plan::state_specs(plan.optimizer, param)) {
        StoredTensor& tensor = tensors.emplace_back(
            StoredTensor{.name = param.name, .kind = spec.kind, .dtype = spec.dtype, .shape = spec.shape});
        if (spec.owned) {
          tensor.pieces = {{static_cast<std::size_t>(owners[index]), {0, tensor.numel()}}};
        } else {
          tensor.pieces = pieces;
        }
      }
    }
  }
  return tensors;
}

namespace {

// Adds what `part` asks for of the optimizer's tensors of one flat buffer.
void add_states(shard::Engine& engine, const optim::Optimizer& optimizer, const std::vector<int>& owners,
                std::size_t flat, Part part, std::vector<LocalPiece>& pieces) {
  const plan::RunPlan& plan = engine.plan();
  const FlatState& state = engine.states()[flat];
  for (const optim::Optimizer::StateTensor& tensor : optimizer.tensors(flat)) {
    for (std::size_t i = 0; i < state.layout->slots.size(); ++i) {
      const ParamSlot& slot = state.layout->slots[i];
      const auto index = static_cast<std::size_t>(slot.param);
      const plan::StateSlot& place = tensor.layout.slots[i];
      Range wanted = place.elements;
      const std::vector<plan::StateSpec> specs = plan::state_specs(plan.optimizer, plan.model.params[index]);
      const auto spec = std::ranges::find(specs, tensor.layout.kind, &plan::StateSpec::kind);
      if (part == Part::kShard && spec != specs.end()) {
        if (!spec->owned) wanted = plan::param_range(slot, state.own);
        if (spec->owned && owners[index] != engine.world().rank()) wanted = {};
      }
      if (wanted.size() == 0) continue;
      pieces.push_back(
          {.param = &plan.model.params[index],
           .kind = tensor.layout.kind,
           .elements = wanted,
           .values = tensor.values.narrow(0, place.begin + wanted.begin - place.elements.begin, wanted.size())});
    }
  }
}

}  // namespace

std::vector<LocalPiece> local_pieces(shard::Engine& engine, optim::Optimizer& optimizer, Part part) {
  const std::vector<int> owners = plan::matrix_owners(engine.plan());
  std::vector<LocalPiece> pieces;
  for (std::size_t flat = 0; flat < engine.states().size(); ++flat) {
    const FlatState& state = engine.states()[flat];
    const plan::FlatLayout& layout = *state.layout;
    if (layout.trainable) {
      const Range range = part == Part::kShard ? state.own : state.updated;
      add_pieces(engine.plan(), layout, TensorKind::kMaster, range, state.master, state.updated, pieces);
      add_states(engine, optimizer, owners, flat, part, pieces);
    } else {
      // Of a shared mapping each rank writes its own shard only.
      const Range range = part == Part::kShard ? state.own : state.kept;
      add_pieces(engine.plan(), layout, TensorKind::kWeight, range, state.compute, state.held, pieces);
    }
  }
  return pieces;
}

}  // namespace intarsia::checkpoint
