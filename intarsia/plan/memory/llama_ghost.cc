#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/plan/memory/model_ghost.h"

namespace intarsia::plan {
namespace {

// Names as in models/llama/llama.cc; a change there belongs here too (tests/plan compares the two by the meter).
class GhostLlama final : public GhostModel {
 public:
  explicit GhostLlama(const GhostRun& run) : GhostModel(run) {
    if (!batch_.isolated) return;
    const auto table = [&](std::int64_t numel) {
      const Holding before = tape_.set_holding(Holding::kTemporaries);
      tables_.push_back(tape_.empty(numel, plan_.compute_dtype));
      tape_.set_holding(before);
    };
    table(2 * rows_ * config_.head_dim);
    const bool windows = config_.sliding_window > 0;
    const bool all = windows && std::ranges::find(config_.windowed_layers, false) == config_.windowed_layers.end();
    if (!all) table(rows_ * batch_.length);
    if (windows) table(rows_ * batch_.length);
  }

 private:
  static std::string name(std::int64_t layer, const char* part) { return concat("model.layers.", layer, ".", part); }
  std::string embedding_name() const override { return "model.embed_tokens.weight"; }
  std::string norm_name() const override { return "model.norm.weight"; }
  std::string block_name(std::int64_t layer) const override { return name(layer, "input_layernorm.weight"); }

  Ghost embed() override { return tape_.embedding(leaf(embedding_name()), rows_, config_.hidden_size); }
  Ghost final_norm(const Ghost& x) override { return rms_norm(x, norm_name(), config_.hidden_size); }

  Ghost rms_norm(const Ghost& x, const std::string& weight, std::int64_t width) {
    if (has_kernels()) return tape_.rms_norm(x, leaf(weight), width);
    const Ghost wide = tape_.to(x, DType::kF32);
    const Ghost scale = tape_.rsqrt_mean(tape_.square(wide), width);
    return tape_.mul(tape_.to(tape_.mul(wide, scale), x.dtype), leaf(weight));
  }

  Ghost rotate(const Ghost& x) {
    if (has_kernels()) return tape_.rotate(x);
    const Ghost table{.numel = batch_.length * config_.head_dim, .dtype = x.dtype, .storage = nullptr, .node = nullptr};
    const Ghost turned = tape_.cat(tape_.neg(tape_.slice(x, x.numel / 2)), tape_.slice(x, x.numel / 2));
    return tape_.add(tape_.mul(x, table), tape_.mul(turned, table));
  }

  Ghost attention(std::int64_t layer, const Ghost& x) {
    const auto heads = [&](const char* part, const char* norm) {
      const Ghost out = linear(name(layer, part), x);
      return config_.qk_norm && norm != nullptr ? rms_norm(out, name(layer, norm), config_.head_dim) : out;
    };
    const Ghost q = rotate(heads("self_attn.q_proj", "self_attn.q_norm.weight"));
    const Ghost k = rotate(heads("self_attn.k_proj", "self_attn.k_norm.weight"));
    const Ghost v = heads("self_attn.v_proj", nullptr);
    const Ghost mixed = tape_.attention(q, k, v,
                                        {.batch = batch_.samples,
                                         .heads = config_.num_attention_heads,
                                         .kv_heads = config_.num_key_value_heads,
                                         .length = batch_.length,
                                         .head_dim = config_.head_dim,
                                         .masked = is_masked(layer)});
    return linear(name(layer, "self_attn.o_proj"), mixed);
  }

  bool is_masked(std::int64_t layer) const {
    const std::int64_t window = config_.window_of(layer);
    return batch_.isolated || (window > 0 && window < batch_.length);
  }

  Ghost block(std::int64_t layer, const Ghost& x, bool stops) override {
    const auto norm = [&](const Ghost& in, const char* part) {
      return rms_norm(in, name(layer, part), config_.hidden_size);
    };
    const Ghost attended = tape_.add(x, attention(layer, norm(x, "input_layernorm.weight")));
    const Ghost normed = norm(attended, "post_attention_layernorm.weight");
    const Ghost gate = linear(name(layer, "mlp.gate_proj"), normed), up = linear(name(layer, "mlp.up_proj"), normed);
    const Ghost gated = has_kernels() ? tape_.swiglu(gate, up) : tape_.mul(tape_.silu(gate), up);
    const Ghost out = tape_.add(attended, linear(name(layer, "mlp.down_proj"), gated, stops));
    tape_.set_stopped(false);
    return out;
  }

  std::vector<Ghost> tables_;  // of isolated documents: rotation and masks of this batch
};

}  // namespace

std::unique_ptr<GhostModel> make_llama_ghost(const GhostRun& run) { return std::make_unique<GhostLlama>(run); }

}  // namespace intarsia::plan
