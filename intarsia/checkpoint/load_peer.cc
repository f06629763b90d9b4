#include "intarsia/checkpoint/load_peer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/inventory.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/plan/checkpoint_weights.h"

namespace intarsia::checkpoint {
namespace {

constexpr std::int64_t kChunk = 1 << 18;  // elements

// One piece of this rank, and where it comes from.
struct Source {
  const formats::LogicalTensor* tensor = nullptr;
  LocalPiece piece;
};

void fill(const formats::LogicalCheckpoint& checkpoint, const Source& source, std::vector<float>& buffer) {
  const plan::Range elements = source.piece.elements;
  for (std::int64_t begin = elements.begin; begin < elements.end; begin += kChunk) {
    const std::int64_t end = std::min(begin + kChunk, elements.end);
    const at::Tensor out = source.piece.values.narrow(0, begin - elements.begin, end - begin);
    if (out.is_cpu() && out.scalar_type() == at::kFloat && out.is_contiguous()) {
      checkpoint.read(*source.tensor, begin, end, static_cast<float*>(out.mutable_data_ptr()));
      continue;
    }
    buffer.resize(static_cast<std::size_t>(end - begin));
    checkpoint.read(*source.tensor, begin, end, buffer.data());
    out.copy_(at::from_blob(buffer.data(), {end - begin}, at::kFloat));
  }
}

PeerProgress progress_of(const formats::LogicalCheckpoint& checkpoint) {
  const formats::TrainingState& state = checkpoint.state();
  PeerProgress out{
      .format = checkpoint.format(), .progress = {}, .next_lr = {}, .has_data_position = state.samples.has_value()};
  out.progress.updates = state.updates.value_or(0);
  out.progress.step = state.step.value_or(out.progress.updates);
  out.progress.data_position = state.samples.value_or(0);
  out.progress.tokens = state.tokens.value_or(0);
  if (state.loss_scale && state.loss_scale->dynamic)
    out.progress.loss_scale = optim::LossScaleState{.scale = state.loss_scale->scale,
                                                    .hysteresis_left = state.loss_scale->hysteresis_left,
                                                    .iteration = state.loss_scale->iteration,
                                                    .last_overflow = state.loss_scale->last_overflow};
  for (const formats::ParameterGroup& group : state.groups)
    if (const auto lr = group.numbers.find("lr"); lr != group.numbers.end())
      out.next_lr = std::max(out.next_lr.value_or(0), lr->second);
  return out;
}

}  // namespace

PeerProgress load_peer(const std::string& path, shard::Engine& engine, optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  comm::Communicator& axis = engine.world();
  const std::string what = concat("the checkpoint ", printable(path), " was not loaded");
  std::optional<plan::CheckpointWeights> weights;
  std::vector<Source> sources;
  all_or_none(axis, what, [&] {
    weights.emplace(formats::open_checkpoint(path), engine.plan().model);
    const formats::LogicalCheckpoint& checkpoint = weights->checkpoint();
    const std::string& missing = checkpoint.state().no_optimizer_state;
    INTARSIA_CHECK(kUnsupported, missing.empty(), printable(path), " has no state of the optimizer: ", missing,
                   "; to begin anew from its weights, give it as --model");
    INTARSIA_CHECK(kFormat, checkpoint.state().updates, printable(path), " (", checkpoint.format(),
                   ") does not tell how many updates its optimizer has made");
    const formats::TrainingState& state = checkpoint.state();
    INTARSIA_CHECK(kFormat, *state.updates >= 0 && state.step.value_or(0) >= 0 && state.samples.value_or(0) >= 0,
                   printable(path), ": a counter of it is negative");
    checkpoint.verify(static_cast<std::size_t>(axis.rank()), static_cast<std::size_t>(axis.size()));
    for (LocalPiece& piece : local_pieces(engine, optimizer, Part::kHeld)) {
      const formats::LogicalTensor* const tensor = weights->find(kind_name(piece.kind), *piece.param);
      INTARSIA_CHECK(kFormat, tensor != nullptr, printable(path), " (", checkpoint.format(), ") lacks \"",
                     printable(piece.stored_name()), "\", which this run's optimizer keeps");
      sources.push_back({tensor, std::move(piece)});
    }
  });
  all_or_none(axis, what, [&] {
    std::vector<float> buffer;
    for (const Source& source : sources) fill(weights->checkpoint(), source, buffer);
  });
  PeerProgress out = progress_of(weights->checkpoint());
  optimizer.set_updates(out.progress.updates);
  engine.publish();
  return out;
}

}  // namespace intarsia::checkpoint
