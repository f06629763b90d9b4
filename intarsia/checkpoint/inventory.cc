#include "intarsia/checkpoint/inventory.h"

#include <ATen/ATen.h>

#include <span>

namespace intarsia::checkpoint {
namespace {

using plan::ParamSlot;
using plan::Range;
using shard::FlatState;

constexpr TensorKind kTrainableKinds[] = {TensorKind::kMaster, TensorKind::kExpAvg, TensorKind::kExpAvgSq};
constexpr TensorKind kFrozenKinds[] = {TensorKind::kWeight};

std::span<const TensorKind> kinds(bool trainable) {
  return trainable ? std::span<const TensorKind>(kTrainableKinds) : std::span<const TensorKind>(kFrozenKinds);
}

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
  std::vector<StoredTensor> tensors;
  for (const plan::FlatLayout& layout : plan.flats) {
    for (const ParamSlot& slot : layout.slots) {
      const plan::ParamSpec& param = plan.model.params[static_cast<std::size_t>(slot.param)];
      std::vector<StoredPiece> pieces;
      for (int piece = 0; piece < layout.num_shards; ++piece) {
        const Range elements = plan::param_range(slot, layout.shard(piece));
        const auto file = static_cast<std::size_t>(plan.grid().rank_of_piece(piece));
        if (elements.size() > 0) pieces.push_back({file, elements});
      }
      for (const TensorKind kind : kinds(layout.trainable))
        tensors.push_back({.name = param.name,
                           .kind = kind,
                           .dtype = layout.trainable ? DType::kF32 : plan.compute_dtype,
                           .shape = param.shape,
                           .pieces = pieces});
    }
  }
  return tensors;
}

std::vector<LocalPiece> local_pieces(shard::Engine& engine, optim::AdamW& adamw, Part part) {
  std::vector<LocalPiece> pieces;
  for (std::size_t flat = 0; flat < engine.states().size(); ++flat) {
    const FlatState& state = engine.states()[flat];
    const plan::FlatLayout& layout = *state.layout;
    const auto add = [&](TensorKind kind, Range range, const at::Tensor& values, Range holds) {
      add_pieces(engine.plan(), layout, kind, range, values, holds, pieces);
    };
    if (layout.trainable) {
      const Range range = part == Part::kShard ? state.own : state.updated;
      const optim::AdamW::Moments& moments = adamw.moments()[flat];
      add(TensorKind::kMaster, range, state.master, state.updated);
      add(TensorKind::kExpAvg, range, moments.first, state.updated);
      add(TensorKind::kExpAvgSq, range, moments.second, state.updated);
    } else {
      // Of a shared mapping each rank writes its own shard only.
      const Range range = part == Part::kShard ? state.own : state.kept;
      add(TensorKind::kWeight, range, state.compute, state.held);
    }
  }
  return pieces;
}

}  // namespace intarsia::checkpoint
