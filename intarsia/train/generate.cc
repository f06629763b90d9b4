#include "intarsia/train/generate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/philox.h"
#include "intarsia/tensor/device.h"

namespace intarsia::train {

std::int64_t choose_token(const at::Tensor& logits, double temperature, double top_p, double uniform) {
  if (temperature == 0) return logits.argmax().item<std::int64_t>();
  const at::Tensor probabilities = at::softmax(logits.to(at::kDouble) / temperature, -1);
  const auto [sorted, order] = probabilities.sort(true, -1, true);
  const double* p = sorted.const_data_ptr<double>();
  std::int64_t kept = 0;
  double mass = 0;
  while (kept < sorted.numel() && (kept == 0 || mass < top_p)) mass += p[kept++];
  double target = uniform * mass;
  std::int64_t chosen = 0;
  while (chosen + 1 < kept && target >= p[chosen]) target -= p[chosen++];
  return order[chosen].item<std::int64_t>();
}

namespace {

// Rank 0's choice: ranks on other processors may round the logits in another way, and all must go on alike.
std::int64_t agreed(comm::Communicator& world, std::int64_t own) {
  if (world.size() == 1) return own;
  const at::Tensor id = at::tensor({own}, at::kLong);
  world.broadcast(id, 0, {"", "generated token"})->wait();
  return id.item<std::int64_t>();
}

}  // namespace

void generate(shard::Engine& engine, models::Model& model, std::int64_t max_positions, std::vector<std::int64_t> ids,
              const GenerateOptions& options, models::KeyValueCache& cache,
              const std::function<bool(std::int64_t id)>& on_token) {
  INTARSIA_CHECK(kUsage, !ids.empty(), "the prompt has no token; give a text");
  const at::NoGradGuard no_grad;
  const std::uint64_t key = philox_key(options.seed, "generate");
  for (std::int64_t count = 0; count < options.max_new_tokens; ++count) {
    const auto context = std::span(ids).last(std::min(static_cast<std::size_t>(max_positions), ids.size()));
    const at::Tensor logits = model.last_logits(engine.parameters(), &engine, context, cache);
    const std::int64_t own = choose_token(tensor::on_host(logits).to(at::kFloat), options.temperature, options.top_p,
                                          philox_uniform(key, static_cast<std::uint64_t>(count)));
    const std::int64_t id = agreed(engine.world(), own);
    if (std::ranges::find(options.stop_ids, id) != options.stop_ids.end()) return;
    ids.push_back(id);
    if (!on_token(id)) return;
  }
}

}  // namespace intarsia::train
