#include "intarsia/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/data/sampler.h"

namespace intarsia::train {
namespace {

// Rank 0 receives the logits of all ranks' micro-batches of one step, in the order of the samples.
void hand_over(comm::Communicator& axis, const data::EvalShares& shares, std::int64_t step, const at::Tensor& logits,
               const LogitsSink& sink) {
  const at::Tensor padded =
      at::zeros({shares.micro_batch, logits.size(1), logits.size(2)}, at::TensorOptions().dtype(at::kFloat));
  padded.narrow(0, 0, logits.size(0)).copy_(logits);
  const at::Tensor all = at::empty({axis.size() * padded.numel()}, at::kFloat);
  axis.all_gather(all, padded.flatten(), {"", "gather logits"})->wait();
  if (axis.rank() != 0) return;
  const at::Tensor by_rank = all.view({axis.size(), shares.micro_batch, logits.size(1), logits.size(2)});
  for (int rank = 0; rank < axis.size(); ++rank) {
    const auto samples = shares.samples_of(rank, step);
    if (!samples.empty()) sink(samples[0], by_rank[rank].narrow(0, 0, static_cast<std::int64_t>(samples.size())));
  }
}

}  // namespace

Evaluation evaluate(shard::Engine& engine, models::Model& model, const data::Dataset& dataset, std::int64_t micro_batch,
                    const formats::Tokenizer* tokenizer, const LogitsSink& sink) {
  const at::NoGradGuard no_grad;
  comm::Communicator& axis = engine.world();
  const data::EvalShares shares = data::eval_shares(dataset.num_samples(), axis.size(), micro_batch);
  double loss = 0;
  std::int64_t tokens = 0, bytes = 0;
  for (std::int64_t step = 0; step < shares.steps(); ++step) {
    const auto samples = shares.samples_of(axis.rank(), step);
    data::Batch batch = data::make_batch(dataset, samples);
    // A rank without samples enters the same units with a row that counts for nothing.
    if (samples.empty()) {
      batch.input_ids = at::zeros({1, dataset.seq_len()}, at::kLong);
      if (batch.positions.defined()) batch.positions = at::zeros({1, dataset.seq_len()}, at::kLong);
    }
    if (!samples.empty()) {
      tokens += batch.num_targets;
      if (tokenizer != nullptr) bytes += data::target_bytes(batch.labels, *tokenizer);
    } else {
      batch.labels = at::full(batch.input_ids.sizes(), data::kNotCounted, at::kLong);
    }
    if (!sink) {
      loss +=
          model.loss_sum(engine.parameters(), &engine, batch.input_ids, batch.positions, batch.labels).item<double>();
      continue;
    }
    const at::Tensor logits = model.logits(engine.parameters(), &engine, batch.input_ids, batch.positions);
    loss += models::causal_loss_sum(logits, batch.labels).item<double>();
    hand_over(axis, shares, step, logits.narrow(0, 0, static_cast<std::int64_t>(samples.size())), sink);
  }
  const at::Tensor mine = at::tensor({loss, static_cast<double>(tokens), static_cast<double>(bytes)},
                                     at::TensorOptions().dtype(at::kDouble));
  const at::Tensor all = at::empty({axis.size() * 3}, at::kDouble);
  axis.all_gather(all, mine, {"", "evaluation totals"})->wait();
  const at::Tensor totals = all.view({axis.size(), 3}).sum(0);
  Evaluation result;
  result.samples = dataset.num_samples();
  result.tokens = static_cast<std::int64_t>(totals[1].item<double>());
  INTARSIA_CHECK(kData, result.tokens > 0, "the evaluation data has no target token");
  result.loss = totals[0].item<double>() / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  const double text_bytes = totals[2].item<double>();
  if (text_bytes > 0) result.bits_per_byte = totals[0].item<double>() / (text_bytes * std::log(2.0));
  return result;
}

}  // namespace intarsia::train
