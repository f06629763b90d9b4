#include "intarsia/plan/memory/model_ghost.h"

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/plan/lora.h"

namespace intarsia::plan {

GhostModel::GhostModel(const GhostRun& run)
    : tape_(run.tape),
      config_(run.config),
      plan_(run.plan),
      batch_(run.batch),
      rows_(run.batch.samples * run.batch.length),
      ledger_(run.ledger),
      events_(run.events) {}

int GhostModel::param(const std::string& name) const {
  const std::optional<int> index = plan_.model.find(name);
  INTARSIA_INVARIANT(index.has_value(), "the model spec has no ", name);
  return *index;
}

Ghost GhostModel::leaf(int index) {
  std::function<void(const Ghost&)> take;
  if (!spec(index).frozen) take = [this, index](const Ghost& gradient) { events_.take_gradient(index, gradient); };
  return tape_.weight(spec(index).numel(), plan_.compute_dtype, std::move(take));
}

Ghost GhostModel::linear(const std::string& name, const Ghost& x, bool stops) {
  const std::optional<int> bias = plan_.model.find(name + ".bias"), a = plan_.model.find(lora_a_name(name));
  tape_.set_stopped(stops && !a);
  const Ghost y = tape_.linear(x, leaf(name + ".weight"), rows_, bias ? leaf(*bias) : Ghost{});
  if (!a) return y;
  const Ghost read = batch_.adapters_drop ? tape_.drop_out(x) : x;
  const Ghost inner = tape_.scale(tape_.linear(read, leaf(*a), rows_));
  tape_.set_stopped(stops);
  return tape_.add(y, tape_.linear(inner, leaf(lora_b_name(name)), rows_));
}

Ghost GhostModel::logits_of(const Ghost& x, int index) {
  const Holding before = tape_.set_holding(Holding::kLogits);
  Ghost logits = tape_.linear(x, leaf(index), rows_);
  tape_.set_holding(before);
  return logits;
}

Ghost GhostModel::run(const std::function<Ghost(const Ghost& normed, int weight)>& head) {
  const int embedding = param(embedding_name());
  Ghost x = run_unit(unit_of(embedding), Ghost{}, [&](const Ghost&) { return embed(); });
  const std::int64_t layers = config_.num_hidden_layers, span = plan_.recompute.span(layers);
  for (std::int64_t begin = 0; begin < layers; begin += span) {
    const std::int64_t end = std::min(begin + span, layers);
    x = plan_.recompute.recomputes(begin)
            ? run_recomputed(begin, end, x)
            : run_unit(unit_of_layer(begin), x, [&](const Ghost& input) { return block(begin, input, false); });
  }
  const int weight = param("lm_head.weight");
  const bool tied = weight == embedding;
  x = run_unit(unit_of(param(norm_name())), x, [&](const Ghost& input) {
    const Ghost normed = final_norm(input);
    return tied ? normed : head(normed, weight);
  });
  if (!tied) return x;
  return run_unit(unit_of(embedding), x, [&](const Ghost& input) { return head(input, embedding); });
}

Ghost GhostModel::loss_sum() {
  if (has_kernels()) return run([this](const Ghost& normed, int weight) { return fused_loss_of(normed, weight); });
  return loss_of(run([this](const Ghost& normed, int weight) { return logits_of(normed, weight); }));
}

Ghost GhostModel::fused_loss_of(const Ghost& normed, int weight) {
  const Holding before = tape_.set_holding(Holding::kLogits);
  Ghost loss = tape_.linear_cross_entropy(normed, leaf(weight), rows_, config_.vocab_size);
  tape_.set_holding(before);
  return loss;
}

Ghost GhostModel::loss_of(const Ghost& logits) {
  ledger_.begin("loss");
  const Holding before = tape_.set_holding(Holding::kLogits);
  const std::int64_t counted = batch_.samples * (batch_.length - 1);
  Ghost predictions = tape_.slice(logits, counted * config_.vocab_size);
  if (batch_.samples > 1) predictions = tape_.copy(predictions);
  predictions = tape_.to(predictions, DType::kF32);
  Ghost loss = tape_.cross_entropy(predictions, counted, config_.vocab_size);
  tape_.set_holding(before);
  return loss;
}

// nn/unit.cc:run_unit.
Ghost GhostModel::run_unit(int unit, const Ghost& input, const Forward& forward) {
  ledger_.begin("forward " + unit_name(unit));
  events_.pre_forward(unit);
  const bool watched = input.needs_grad();
  Ghost output = forward(watched ? tape_.pass(input, [this, unit] { events_.post_backward(unit); }) : input);
  const bool needs_backward = output.needs_grad();
  tape_.before_backward(output, [this, unit] {
    ledger_.begin("backward " + unit_name(unit));
    events_.pre_backward(unit);
  });
  events_.post_forward(unit, needs_backward);
  return output;
}

// nn/recompute/blocks.cc: layers [begin, end) as one recomputed piece. Autograd walks the graph of the first run;
// here the second run's graph stands for it, since it holds the same tensors for as long.
Ghost GhostModel::run_recomputed(std::int64_t begin, std::int64_t end, const Ghost& input) {
  const bool selective = plan_.recompute.policy == Recompute::kSelective;
  const auto products = std::make_shared<std::vector<Ghost>>();
  const bool enabled = tape_.set_grad_enabled(false);
  Ghost output = input;
  if (selective && enabled) tape_.keep_products(products.get(), false);
  for (std::int64_t layer = begin; layer < end; ++layer) {
    const int unit = unit_of_layer(layer);
    ledger_.begin("forward " + unit_name(unit));
    events_.pre_forward(unit);
    output = block(layer, output, false);
    events_.post_forward(unit, enabled);
  }
  tape_.keep_products(nullptr, false);
  if (!products->empty()) products->pop_back();  // of the last one only its inputs are needed
  tape_.set_grad_enabled(enabled);
  if (!enabled) return output;
  Ghost kept = input;
  kept.node.reset();
  return tape_.custom(input, output, [this, begin, end, kept, products, needs = input.needs_grad()](const Ghost& grad) {
    return backward_recomputed(begin, end, needs ? tape_.leaf(kept) : kept, *products, grad);
  });
}

Ghost GhostModel::backward_recomputed(std::int64_t begin, std::int64_t end, const Ghost& input,
                                      std::vector<Ghost>& products, const Ghost& grad) {
  const auto enter = [this](int unit) {
    ledger_.begin("backward " + unit_name(unit), true);
    events_.pre_backward(unit);
  };
  enter(unit_of_layer(end - 1));
  const Holding holding = tape_.set_holding(Holding::kActivations);
  tape_.set_grad_enabled(true);
  if (!products.empty()) tape_.keep_products(&products, true);
  Ghost h = input;
  for (std::int64_t layer = begin; layer < end; ++layer) {
    const int unit = unit_of_layer(layer);
    const bool last = layer + 1 == end;
    if (end - begin > 1) events_.pre_forward(unit);
    h = block(layer, tape_.pass(h, [this, unit] { events_.post_backward(unit); }), last);
    if (!last) tape_.before_backward(h, [enter, unit] { enter(unit); });
    if (end - begin > 1) events_.post_forward(unit, false);
  }
  tape_.keep_products(nullptr, false);
  products.clear();
  tape_.set_grad_enabled(false);
  tape_.set_holding(holding);
  tape_.backward(h, grad);
  return tape_.leaf_grad(input);
}

void run_micro_step(const GhostRun& run, bool train) {
  const bool enabled = run.tape.set_grad_enabled(train);
  const auto model = run.config.model_type == "gpt2" ? make_gpt2_ghost(run) : make_llama_ghost(run);
  const Ghost loss = model->loss_sum();
  run.ledger.begin("backward loss");
  if (train) run.tape.backward(loss, run.tape.empty(1, DType::kF32));
  run.tape.set_grad_enabled(enabled);
}

std::int64_t model_table_bytes(const formats::HfConfig& config, const RunPlan& plan, bool isolated) {
  if (config.model_type == "gpt2" || isolated) return 0;
  std::int64_t numel = 2 * plan.seq_len * config.head_dim;
  if (config.sliding_window > 0 && config.sliding_window < plan.seq_len) numel += plan.seq_len * plan.seq_len;
  return numel * static_cast<std::int64_t>(dtype_size(plan.compute_dtype));
}

}  // namespace intarsia::plan
