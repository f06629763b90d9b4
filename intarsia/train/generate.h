// Continues a text.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "intarsia/models/model.h"
#include "intarsia/shard/engine.h"

namespace intarsia::train {

struct GenerateOptions {
  std::int64_t max_new_tokens = 128;
  double temperature = 0;  // 0: greedy, the most likely token
  double top_p = 1;        // only the most likely tokens that together have this probability
  std::uint64_t seed = 42;
  std::vector<std::int64_t> stop_ids;  // generation ends with one of them
};

// Appends tokens to `ids` and hands each on as it comes; `on_token` returns false to stop. The context is cut to
// `max_positions`. A token runs what `cache` does not hold: itself alone, until the context is cut, from where on each
// token runs the whole context.
// Random numbers depend on (seed, position) only. Collective over the engine's axis: all ranks give the same arguments
// and get rank 0's tokens, and on_token must answer alike on all. Errors: kUsage for a prompt without tokens.
// REQUIRES: temperature >= 0, top_p in (0, 1].
// Memory: the cache, and the activations of what is run, without gradients.
void generate(shard::Engine& engine, models::Model& model, std::int64_t max_positions, std::vector<std::int64_t> ids,
              const GenerateOptions& options, models::KeyValueCache& cache,
              const std::function<bool(std::int64_t id)>& on_token);

// Chooses from logits [V]: greedy for temperature 0, else by `uniform` in [0, 1) from the top_p most likely.
std::int64_t choose_token(const at::Tensor& logits, double temperature, double top_p, double uniform);

}  // namespace intarsia::train
