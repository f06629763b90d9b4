#include "intarsia/formats/gguf/gguf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/problem_list.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::ordered_json;

struct Architecture {
  std::string_view name;   // general.architecture
  const char* model_type;  // of config.json
  const char* class_name;
  bool interleaved;  // query and key rows are in the order of interleaved RoPE
};

constexpr std::array<Architecture, 3> kArchitectures = {{
    {"llama", "llama", "LlamaForCausalLM", true},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", false},
}};

// The parts of a block's tensor, "attn_q.weight" of "blk.3.attn_q.weight".
constexpr std::array<std::array<std::string_view, 2>, 17> kBlockNames = {{
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate.bias", "mlp.gate_proj.bias"},
    {"ffn_up.bias", "mlp.up_proj.bias"},
}};

// A number that the file holds in fp32, as the decimal that was meant: 1e-05 and not 9.99999974e-06.
double meant(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(value)).ptr;
  double out = value;
  std::from_chars(text.data(), end, out);
  return out;
}

class Reader {
 public:
  Reader(const GgufFile& file, DType dtype) : file_(file), dtype_(dtype) {
    const std::string name = file.text("general.architecture").value_or("(none)");
    for (const Architecture& known : kArchitectures)
      if (name == known.name) architecture_ = &known;
    INTARSIA_CHECK(kUnsupported, architecture_ != nullptr, printable(file.path()), ": general.architecture ",
                   printable(name), " is not supported; known are llama, qwen2 and qwen3");
  }

  GgufModel run() {
    Json config = sizes();
    GgufModel out;
    out.weights = weights();
    add_rope(config);
    check_keys();
    problems_.throw_if_any(ErrorKind::kFormat, printable(file_.path()));
    out.config = config.dump(2, ' ', false) + "\n";
    return out;
  }

 private:
  std::string key(const char* name) {
    std::string out = concat(architecture_->name, ".", name);
    used_.insert(out);
    return out;
  }
  std::optional<std::int64_t> integer(const char* name) { return file_.integer(key(name)); }
  std::int64_t size(const char* name) {
    const std::string full = key(name);
    const auto value = file_.integer(full);
    INTARSIA_CHECK(kFormat, value && *value > 0 && *value < (std::int64_t{1} << 31), printable(file_.path()), ": ",
                   full, value ? concat(" is ", *value) : " is missing", "; a number above 0 is needed");
    return *value;
  }
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kUnsupported, printable(file_.path()), ": ", parts..., ", which is not supported");
  }

  Json sizes() {
    hidden_ = size("embedding_length");
    layers_ = size("block_count");
    heads_ = size("attention.head_count");
    kv_heads_ = integer("attention.head_count_kv").value_or(heads_);
    INTARSIA_CHECK(kFormat, kv_heads_ > 0 && heads_ % kv_heads_ == 0, printable(file_.path()), ": ", heads_,
                   " heads and ", kv_heads_, " key/value heads");
    head_dim_ = integer("attention.key_length").value_or(hidden_ / heads_);
    if (integer("attention.value_length").value_or(head_dim_) != head_dim_)
      refuse("heads of keys and values of two sizes");
    if (integer("rope.dimension_count").value_or(head_dim_) != head_dim_)
      refuse("rotary embedding of a part of a head");
    if (integer("expert_count").value_or(0) > 0) refuse("a mixture of experts");
    ffn_ = size("feed_forward_length");
    const GgufTensor* embedding = file_.find("token_embd.weight");
    INTARSIA_CHECK(kFormat, embedding != nullptr && embedding->shape.size() == 2, printable(file_.path()),
                   ": there is no matrix token_embd.weight");
    vocab_ = embedding->shape[0];
    integer("vocab_size");
    const auto epsilon = file_.number(key("attention.layer_norm_rms_epsilon"));
    INTARSIA_CHECK(kFormat, epsilon, printable(file_.path()), ": ", architecture_->name,
                   ".attention.layer_norm_rms_epsilon is missing");
    const char* type = dtype_ == DType::kF32 ? "float32" : dtype_ == DType::kBF16 ? "bfloat16" : "float16";
    Json out{{"architectures", {architecture_->class_name}},
             {"model_type", architecture_->model_type},
             {"vocab_size", vocab_},
             {"hidden_size", hidden_},
             {"intermediate_size", ffn_},
             {"num_hidden_layers", layers_},
             {"num_attention_heads", heads_},
             {"num_key_value_heads", kv_heads_},
             {"head_dim", head_dim_},
             {"hidden_act", "silu"},
             {"max_position_embeddings", size("context_length")},
             {"rms_norm_eps", meant(*epsilon)},
             {"rope_theta", meant(file_.number(key("rope.freq_base")).value_or(10000))},
             {"rope_scaling", nullptr},
             {"tie_word_embeddings", file_.find("output.weight") == nullptr},
             {"initializer_range", 0.02},
             {"torch_dtype", type},
             {"dtype", type}};
    if (architecture_->name == "llama") {
      out["attention_bias"] = file_.find("blk.0.attn_q.bias") != nullptr;
      out["mlp_bias"] = file_.find("blk.0.ffn_gate.bias") != nullptr;
    } else if (architecture_->name == "qwen2") {
      out["use_sliding_window"] = false;
    } else {
      out["attention_bias"] = file_.find("blk.0.attn_q.bias") != nullptr;
      out["use_sliding_window"] = false;
    }
    for (const auto& [name, id] :
         {std::pair("bos_token_id", "bos"), {"eos_token_id", "eos"}, {"pad_token_id", "padding"}})
      if (const auto value = file_.integer(concat("tokenizer.ggml.", id, "_token_id"))) out[name] = *value;
    return out;
  }

  void add_rope(Json& config) {
    const auto kind = file_.text(key("rope.scaling.type"));
    const auto factor = file_.number(key("rope.scaling.factor"));
    const auto old_factor = file_.number(key("rope.scale_linear"));
    if (kind && *kind != "none" && *kind != "linear") refuse("rope.scaling.type ", printable(*kind));
    if ((kind && *kind == "linear") || old_factor) {
      const double linear = factor.value_or(old_factor.value_or(0));
      INTARSIA_CHECK(kFormat, linear > 0, printable(file_.path()), ": rope.scaling.factor is missing");
      if (linear != 1)
        config["rope_scaling"] = {{"rope_type", "linear"}, {"type", "linear"}, {"factor", meant(linear)}};
    }
    if (const GgufTensor* factors = file_.find("rope_freqs.weight"))
      config["rope_scaling"] = llama3_scaling(*factors, config["rope_theta"]);
  }

  // Llama 3.1's scaling is in the file as the factor of each frequency; the numbers it was made from are found again.
  // Source: llama.cpp, convert_hf_to_gguf.py (rope_freqs), and Llama 3.1's rope_scaling "llama3".
  Json llama3_scaling(const GgufTensor& tensor, double base) const {
    constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
    if (tensor.numel() != head_dim_ / 2) refuse("rope_freqs.weight of ", tensor.numel(), " elements");
    std::vector<float> stored(static_cast<std::size_t>(tensor.numel()));
    for (std::int64_t row = 0; row < tensor.num_rows(); ++row)
      file_.read_row(tensor, row, stored.data() + row * tensor.row_numel());
    const double factor = *std::max_element(stored.begin(), stored.end());
    for (std::size_t j = 0; j < stored.size(); ++j) {
      const double frequency = std::pow(base, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim_));
      const double wavelength = 2 * std::numbers::pi / frequency;
      double expected = 1;
      if (wavelength > kOriginal / kLow) {
        expected = factor;
      } else if (wavelength >= kOriginal / kHigh) {
        const double smooth = (kOriginal / wavelength - kLow) / (kHigh - kLow);
        expected = 1 / ((1 - smooth) / factor + smooth);
      }
      if (!(std::fabs(stored[j] - expected) <= 1e-4 * expected))
        refuse("rope_freqs.weight, which is no scaling of Llama 3's with the original length 8192");
    }
    return {{"rope_type", "llama3"},     {"type", "llama3"},
            {"factor", meant(factor)},   {"low_freq_factor", kLow},
            {"high_freq_factor", kHigh}, {"original_max_position_embeddings", static_cast<std::int64_t>(kOriginal)}};
  }

  std::vector<std::int64_t> shape_of(std::string_view part) const {
    const std::int64_t q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
    if (part.ends_with("norm.weight"))
      return {part.starts_with("attn_q_") || part.starts_with("attn_k_") ? head_dim_ : hidden_};
    if (part == "attn_q.weight") return {q, hidden_};
    if (part == "attn_k.weight" || part == "attn_v.weight") return {kv, hidden_};
    if (part == "attn_output.weight") return {hidden_, q};
    if (part == "attn_q.bias") return {q};
    if (part == "attn_k.bias" || part == "attn_v.bias") return {kv};
    if (part == "attn_output.bias") return {hidden_};
    if (part == "ffn_down.weight") return {hidden_, ffn_};
    return part.ends_with("bias") ? std::vector<std::int64_t>{ffn_} : std::vector<std::int64_t>{ffn_, hidden_};
  }

  void add(std::vector<GgufWeight>& out, const GgufTensor& tensor, std::string name,
           const std::vector<std::int64_t>& shape, std::int64_t interleaved_heads = 0) {
    if (tensor.shape != shape)
      problems_.add("tensor ", printable(tensor.name), " has shape ", shown(tensor.shape), ", expected ", shown(shape));
    out.push_back({&tensor, std::move(name), interleaved_heads});
  }

  static std::string shown(const std::vector<std::int64_t>& shape) {
    std::vector<std::string> parts;
    for (const std::int64_t size : shape) parts.push_back(std::to_string(size));
    return "[" + join(parts) + "]";
  }

  std::vector<GgufWeight> weights() {
    std::vector<GgufWeight> out;
    std::set<std::string> seen;
    for (const GgufTensor& tensor : file_.tensors()) {
      seen.insert(tensor.name);
      if (tensor.name == "token_embd.weight") {
        add(out, tensor, "model.embed_tokens.weight", {vocab_, hidden_});
      } else if (tensor.name == "output.weight") {
        add(out, tensor, "lm_head.weight", {vocab_, hidden_});
      } else if (tensor.name == "output_norm.weight") {
        add(out, tensor, "model.norm.weight", {hidden_});
      } else if (tensor.name != "rope_freqs.weight") {
        add_block_tensor(out, tensor);
      }
    }
    const auto need = [&](const std::string& name) {
      if (!seen.contains(name)) problems_.add("tensor ", name, " is missing");
    };
    need("output_norm.weight");
    for (std::int64_t i = 0; i < std::min<std::int64_t>(layers_, 100'000); ++i) {
      for (std::size_t part = 0; part < kBlockNames.size(); ++part)
        if (kBlockNames[part][0].ends_with(".weight") && !kBlockNames[part][0].ends_with("q_norm.weight") &&
            !kBlockNames[part][0].ends_with("k_norm.weight"))
          need(concat("blk.", i, ".", kBlockNames[part][0]));
    }
    return out;
  }

  void add_block_tensor(std::vector<GgufWeight>& out, const GgufTensor& tensor) {
    const std::string_view name = tensor.name;
    std::int64_t layer = -1;
    const std::size_t dot = name.find('.', 4);
    if (name.starts_with("blk.") && dot != name.npos)
      if (std::from_chars(name.data() + 4, name.data() + dot, layer).ptr != name.data() + dot) layer = -1;
    const std::string_view part = dot == name.npos ? std::string_view() : name.substr(dot + 1);
    const auto known =
        std::find_if(kBlockNames.begin(), kBlockNames.end(), [&](const auto& names) { return names[0] == part; });
    if (layer < 0 || layer >= layers_ || known == kBlockNames.end()) refuse("the tensor ", printable(name));
    const bool turns = part.starts_with("attn_q.") || part.starts_with("attn_k.");
    const std::int64_t heads = part.starts_with("attn_q.") ? heads_ : kv_heads_;
    add(out, tensor, concat("model.layers.", layer, ".", (*known)[1]), shape_of(part),
        turns && architecture_->interleaved ? heads : 0);
  }

  // A key of the model that nobody asked for may change what it computes.
  void check_keys() const {
    const std::string prefix = concat(architecture_->name, ".");
    for (const auto& [name, unused] : file_.values())
      if (name.starts_with(prefix) && !used_.contains(std::string(name))) refuse("the key ", printable(name));
  }

  const GgufFile& file_;
  DType dtype_;
  const Architecture* architecture_ = nullptr;
  std::set<std::string> used_;
  ProblemList problems_;
  std::int64_t hidden_ = 0, layers_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, ffn_ = 0, vocab_ = 0;
};

}  // namespace

GgufModel model_of_gguf(const GgufFile& file, DType dtype) { return Reader(file, dtype).run(); }

}  // namespace intarsia::formats
