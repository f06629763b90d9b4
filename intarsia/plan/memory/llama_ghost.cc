#include "intarsia/plan/memory/llama_ghost.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

// Names as in models/llama/llama.cc; a change there belongs here too (tests/plan compares the two by the meter).
class GhostLlama {
 public:
  GhostLlama(GhostTape& tape, Ledger& ledger, GhostEvents& events, const formats::HfConfig& config, const RunPlan& plan,
             const GhostBatch& batch)
      : tape_(tape),
        ledger_(ledger),
        events_(events),
        config_(config),
        plan_(plan),
        batch_(batch),
        rows_(batch.samples * batch.length) {}

  Ghost logits() {
    const int embed = param("model.embed_tokens.weight");
    Ghost x = run_unit(unit_of(embed), Ghost{},
                       [&](const Ghost&) { return tape_.embedding(leaf(embed), rows_, config_.hidden_size); });
    const std::int64_t layers = config_.num_hidden_layers, span = plan_.recompute.span(layers);
    for (std::int64_t begin = 0; begin < layers; begin += span) {
      const std::int64_t end = std::min(begin + span, layers);
      x = plan_.recompute.recomputes(begin)
              ? run_recomputed(begin, end, x)
              : run_unit(unit_of_layer(begin), x, [&](const Ghost& input) { return block(begin, input); });
    }
    const int norm = param("model.norm.weight"), head = param("lm_head.weight");
    const bool tied = head == embed;
    x = run_unit(unit_of(norm), x, [&](const Ghost& input) {
      const Ghost normed = rms_norm(input, norm);
      if (tied) return normed;
      return head_of(normed, head);
    });
    if (!tied) return x;
    return run_unit(unit_of(embed), x, [&](const Ghost& input) { return head_of(input, embed); });
  }

  Ghost loss_sum(const Ghost& logits) {
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

 private:
  using Forward = std::function<Ghost(const Ghost&)>;

  static std::string name(std::int64_t layer, const char* part) {
    return concat("model.layers.", layer, ".", part, ".weight");
  }
  int param(const std::string& name) const {
    const std::optional<int> index = plan_.model.find(name);
    INTARSIA_INVARIANT(index.has_value(), "the model spec has no ", name);
    return *index;
  }
  const ParamSpec& spec(int index) const { return plan_.model.params[static_cast<std::size_t>(index)]; }
  int unit_of(int index) const { return spec(index).unit; }
  const std::string& unit_name(int unit) const { return plan_.model.units[static_cast<std::size_t>(unit)].name; }

  Ghost leaf(int index) {
    std::function<void(const Ghost&)> take;
    if (!spec(index).frozen) take = [this, index](const Ghost& gradient) { events_.take_gradient(index, gradient); };
    return tape_.weight(spec(index).numel(), plan_.compute_dtype, std::move(take));
  }

  Ghost head_of(const Ghost& x, int index) {
    const Holding before = tape_.set_holding(Holding::kLogits);
    Ghost logits = tape_.linear(x, leaf(index), rows_);
    tape_.set_holding(before);
    return logits;
  }

  Ghost rms_norm(const Ghost& x, int weight) {
    const Ghost wide = tape_.to(x, DType::kF32);
    const Ghost scale = tape_.rsqrt_mean(tape_.square(wide), config_.hidden_size);
    return tape_.mul(tape_.to(tape_.mul(wide, scale), x.dtype), leaf(weight));
  }

  Ghost rotate(const Ghost& x) {
    const Ghost table{.numel = batch_.length * config_.head_dim, .dtype = x.dtype, .storage = nullptr, .node = nullptr};
    const Ghost turned = tape_.cat(tape_.neg(tape_.slice(x, x.numel / 2)), tape_.slice(x, x.numel / 2));
    return tape_.add(tape_.mul(x, table), tape_.mul(turned, table));
  }

  Ghost attention(std::int64_t layer, const Ghost& x) {
    const auto heads = [&](const char* part) { return tape_.linear(x, leaf(param(name(layer, part))), rows_); };
    const Ghost q = rotate(heads("self_attn.q_proj"));
    const Ghost k = rotate(heads("self_attn.k_proj"));
    const Ghost v = heads("self_attn.v_proj");
    const Ghost mixed = tape_.attention(q, k, v,
                                        {.batch = batch_.samples,
                                         .heads = config_.num_attention_heads,
                                         .kv_heads = config_.num_key_value_heads,
                                         .length = batch_.length,
                                         .head_dim = config_.head_dim});
    return tape_.linear(mixed, leaf(param(name(layer, "self_attn.o_proj"))), rows_);
  }

  int unit_of_layer(std::int64_t layer) const { return unit_of(param(name(layer, "input_layernorm"))); }

  // `stops`: a second run ends once the last product's inputs are saved.
  Ghost block(std::int64_t layer, const Ghost& x, bool stops = false) {
    const Ghost attended = tape_.add(x, attention(layer, rms_norm(x, param(name(layer, "input_layernorm")))));
    const Ghost normed = rms_norm(attended, param(name(layer, "post_attention_layernorm")));
    const Ghost gated = tape_.mul(tape_.silu(tape_.linear(normed, leaf(param(name(layer, "mlp.gate_proj"))), rows_)),
                                  tape_.linear(normed, leaf(param(name(layer, "mlp.up_proj"))), rows_));
    tape_.set_stopped(stops);
    const Ghost out = tape_.add(attended, tape_.linear(gated, leaf(param(name(layer, "mlp.down_proj"))), rows_));
    tape_.set_stopped(false);
    return out;
  }

  // nn/unit.cc:run_unit.
  Ghost run_unit(int unit, const Ghost& input, const Forward& forward) {
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
  Ghost run_recomputed(std::int64_t begin, std::int64_t end, const Ghost& input) {
    const bool selective = plan_.recompute.policy == Recompute::kSelective;
    const auto products = std::make_shared<std::vector<Ghost>>();
    const bool enabled = tape_.set_grad_enabled(false);
    Ghost output = input;
    if (selective && enabled) tape_.keep_products(products.get(), false);
    for (std::int64_t layer = begin; layer < end; ++layer) {
      const int unit = unit_of_layer(layer);
      ledger_.begin("forward " + unit_name(unit));
      events_.pre_forward(unit);
      output = block(layer, output);
      events_.post_forward(unit, enabled);
    }
    tape_.keep_products(nullptr, false);
    if (!products->empty()) products->pop_back();  // of the last one only its inputs are needed
    tape_.set_grad_enabled(enabled);
    if (!enabled) return output;
    Ghost kept = input;
    kept.node.reset();
    return tape_.custom(input, output,
                        [this, begin, end, kept, products, needs = input.needs_grad()](const Ghost& grad) {
                          return backward_recomputed(begin, end, needs ? tape_.leaf(kept) : kept, *products, grad);
                        });
  }

  Ghost backward_recomputed(std::int64_t begin, std::int64_t end, const Ghost& input, std::vector<Ghost>& products,
                            const Ghost& grad) {
    const auto enter = [this](int unit) {
      ledger_.begin("backward " + unit_name(unit));
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

  GhostTape& tape_;
  Ledger& ledger_;
  GhostEvents& events_;
  const formats::HfConfig& config_;
  const RunPlan& plan_;
  GhostBatch batch_;
  std::int64_t rows_;
};

}  // namespace

void run_llama_micro_step(GhostTape& tape, Ledger& ledger, GhostEvents& events, const formats::HfConfig& config,
                          const RunPlan& plan, const GhostBatch& batch, bool train) {
  const bool enabled = tape.set_grad_enabled(train);
  GhostLlama model(tape, ledger, events, config, plan, batch);
  const Ghost logits = model.logits();
  const Ghost loss = model.loss_sum(logits);
  ledger.begin("backward loss");
  if (train) tape.backward(loss, tape.empty(1, DType::kF32));
  tape.set_grad_enabled(enabled);
}

}  // namespace intarsia::plan
