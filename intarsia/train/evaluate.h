// Loss of a model over a data set, without changing anything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "intarsia/data/batch.h"
#include "intarsia/formats/tokenizer.h"
#include "intarsia/models/model.h"
#include "intarsia/shard/engine.h"

namespace intarsia::train {

struct Evaluation {
  double loss = 0;  // nats per target token
  double perplexity = 0;
  std::optional<double> bits_per_byte;  // when the tokenizer is known
  std::int64_t tokens = 0;
  std::int64_t samples = 0;
};

// Called on rank 0 with the logits [n, S, V] of samples first, first + 1, ...; may be empty.
using LogitsSink = std::function<void(std::int64_t first, const at::Tensor& logits)>;

// Every sample counts once, however many ranks. All ranks get the same result.
// Collective over the engine's axis. Memory: the activations of one micro-batch without gradients; with a sink the
// logits of one micro-batch of every rank.
// Errors: kData when there is no target at all.
Evaluation evaluate(shard::Engine& engine, models::Model& model, const data::Dataset& dataset, std::int64_t micro_batch,
                    const formats::Tokenizer* tokenizer, const LogitsSink& sink = {});

}  // namespace intarsia::train
