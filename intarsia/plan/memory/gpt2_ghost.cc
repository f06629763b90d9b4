#include "intarsia/base/error.h"
#include "intarsia/plan/memory/model_ghost.h"

namespace intarsia::plan {
namespace {

// Names as in models/gpt2/gpt2.cc; a change there belongs here too (tests/plan compares the two by the meter).
class GhostGpt2 final : public GhostModel {
 public:
  explicit GhostGpt2(const GhostRun& run) : GhostModel(run) {
    if (!batch_.isolated) return;
    const Holding before = tape_.set_holding(Holding::kTemporaries);
    mask_ = tape_.empty(rows_ * batch_.length, plan_.compute_dtype);
    tape_.set_holding(before);
  }

 private:
  std::string at(const std::string& part) const { return config_.tensor_prefix + part; }
  std::string embedding_name() const override { return at("wte.weight"); }
  std::string norm_name() const override { return at("ln_f.weight"); }
  std::string block_name(std::int64_t layer) const override { return at(concat("h.", layer, ".ln_1.weight")); }

  Ghost embed() override {
    const Ghost tokens = tape_.embedding(leaf(at("wte.weight")), rows_, config_.hidden_size);
    const std::int64_t places = batch_.isolated ? rows_ : batch_.length;
    return tape_.add(tokens, tape_.embedding(leaf(at("wpe.weight")), places, config_.hidden_size));
  }
  Ghost final_norm(const Ghost& x) override { return layer_norm(x, at("ln_f")); }

  Ghost layer_norm(const Ghost& x, const std::string& name) {
    return tape_.layer_norm(x, leaf(name + ".weight"), leaf(name + ".bias"));
  }

  Ghost block(std::int64_t layer, const Ghost& x, bool stops) override {
    const std::string name = at(concat("h.", layer, "."));
    const Ghost qkv = linear(name + "attn.c_attn", layer_norm(x, name + "ln_1"));
    const Ghost mixed = tape_.attention_of_one(qkv, {.batch = batch_.samples,
                                                     .heads = config_.num_attention_heads,
                                                     .kv_heads = config_.num_attention_heads,
                                                     .length = batch_.length,
                                                     .head_dim = config_.head_dim,
                                                     .masked = batch_.isolated});
    const Ghost attended = tape_.add(x, linear(name + "attn.c_proj", mixed));
    const Ghost hidden = tape_.gelu(linear(name + "mlp.c_fc", layer_norm(attended, name + "ln_2")));
    const Ghost out = tape_.add(attended, linear(name + "mlp.c_proj", hidden, stops));
    tape_.set_stopped(false);
    return out;
  }

  Ghost mask_;  // of isolated documents
};

}  // namespace

std::unique_ptr<GhostModel> make_gpt2_ghost(const GhostRun& run) { return std::make_unique<GhostGpt2>(run); }

}  // namespace intarsia::plan
