#include "intarsia/formats/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/tokenizer_spec.h"
#include "intarsia/formats/tokenizer_text.h"
#include "intarsia/formats/tokenizer_words.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::ordered_json;

// Kinds of tokens, as llama.cpp numbers them.
constexpr std::int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

class Converter {
 public:
  explicit Converter(const GgufFile& file) : file_(file) {
    const auto* tokens = file.texts("tokenizer.ggml.tokens");
    require(tokens != nullptr && !tokens->empty(), "there is no list tokenizer.ggml.tokens");
    tokens_ = tokens;
    types_ = file.integers("tokenizer.ggml.token_type");
    require(types_ == nullptr || types_->size() == tokens_->size(), "tokenizer.ggml.token_type has ",
            types_ == nullptr ? 0 : types_->size(), " items, there are ", tokens_->size(), " tokens");
    for (const std::string_view token : *tokens_)
      require(!first_invalid_utf8(token), "the token \"", printable(token), "\" is not UTF-8");
    check_keys();
  }

  TokenizerFiles run() {
    const std::string kind = file_.text("tokenizer.ggml.model").value_or("(none)");
    Json root{{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
              {"added_tokens", added()},   {"normalizer", nullptr}, {"pre_tokenizer", nullptr},
              {"post_processor", nullptr}, {"decoder", nullptr}};
    if (kind == "gpt2") {
      byte_level(root);
    } else if (kind == "llama") {
      with_scores(root);
    } else {
      refuse("tokenizer.ggml.model ", printable(kind), " (known are gpt2 and llama)");
    }
    return {root.dump(1, ' ', false) + "\n", config().dump(1, ' ', false) + "\n"};
  }

 private:
  template <typename... Parts>
  void require(bool holds, const Parts&... parts) const {
    if (!holds) fail(ErrorKind::kFormat, printable(file_.path()), ": ", parts...);
  }
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kUnsupported, printable(file_.path()), ": the tokenizer needs ", parts...,
         ", which is not supported");
  }

  void check_keys() const {
    constexpr std::string_view kKnown[] = {"model",  "pre",           "tokens",        "token_type",      "scores",
                                           "merges", "add_bos_token", "add_eos_token", "add_space_prefix"};
    constexpr std::string_view kPrefix = "tokenizer.ggml.";
    for (const auto& [key, unused] : file_.values()) {
      if (!key.starts_with(kPrefix)) continue;
      const std::string_view name = key.substr(kPrefix.size());
      const bool known =
          name.ends_with("_token_id") || std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown);
      if (!known) refuse("the key ", printable(key));
    }
  }

  std::string token(std::size_t id) const { return std::string((*tokens_)[id]); }
  std::int64_t type(std::size_t id) const { return types_ == nullptr ? kNormal : (*types_)[id]; }

  // The token that tokenizer.ggml.NAME_token_id names.
  std::optional<std::size_t> special(const char* name) const {
    const auto id = file_.integer(concat("tokenizer.ggml.", name, "_token_id"));
    if (!id) return std::nullopt;
    require(*id >= 0 && static_cast<std::size_t>(*id) < tokens_->size(), "tokenizer.ggml.", name, "_token_id is ", *id,
            ", there are ", tokens_->size(), " tokens");
    return static_cast<std::size_t>(*id);
  }

  Json added() const {
    Json out = Json::array();
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      const bool is_special = type(id) == kControl || type(id) == kUnknown;
      if (!is_special && type(id) != kUserDefined) continue;
      out.push_back({{"id", id},
                     {"content", token(id)},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", is_special}});
    }
    return out;
  }

  Json vocabulary() const {
    Json out = Json::object();
    // Appended and not looked up: ordered_json would search its list for each of a hundred thousand keys.
    auto& items = out.get_ref<Json::object_t&>();
    items.reserve(tokens_->size());
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      require(ids_.emplace((*tokens_)[id], id).second, "the token \"", printable((*tokens_)[id]), "\" comes twice");
      items.emplace_back(token(id), id);
    }
    return out;
  }

  Json post_processor(bool bos_by_default) const {
    const auto id_if = [&](bool wanted, const char* name) { return wanted ? special(name) : std::nullopt; };
    const auto bos = id_if(file_.boolean("tokenizer.ggml.add_bos_token").value_or(bos_by_default), "bos");
    const auto eos = id_if(file_.boolean("tokenizer.ggml.add_eos_token").value_or(false), "eos");
    Json single = Json::array(), tokens = Json::object();
    const auto add = [&](const std::optional<std::size_t>& id) {
      if (!id) return;
      single.push_back({{"SpecialToken", {{"id", token(*id)}, {"type_id", 0}}}});
      tokens[token(*id)] = {{"id", token(*id)}, {"ids", {*id}}, {"tokens", {token(*id)}}};
    };
    add(bos);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    add(eos);
    if (!bos && !eos) return nullptr;
    Json pair = single;
    for (Json piece : single) {
      if (piece.contains("Sequence")) piece["Sequence"]["id"] = "B";
      piece.begin().value()["type_id"] = 1;
      pair.push_back(piece);
    }
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  }

  static Json byte_level_part(bool use_regex) {
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
  }

  static Json split_part(WordPattern pattern) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", std::string(source(pattern))}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level_part(false)}}};
  }

  void byte_level(Json& root) const {
    const std::string words = file_.text("tokenizer.ggml.pre").value_or("(none)");
    bool ignore_merges = false;
    if (words == "gpt-2" || words == "gpt2") {
      root["pre_tokenizer"] = byte_level_part(true);
    } else if (words == "smollm") {
      root["pre_tokenizer"] = {
          {"type", "Sequence"},
          {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level_part(true)}}};
    } else if (words == "llama-bpe" || words == "llama3" || words == "llama-v3") {
      root["pre_tokenizer"] = split_part(WordPattern::kLlama3);
      ignore_merges = true;
    } else if (words == "qwen2") {
      root["normalizer"] = {{"type", "NFC"}};
      root["pre_tokenizer"] = split_part(WordPattern::kQwen2);
    } else {
      refuse("tokenizer.ggml.pre ", printable(words), " (known are gpt-2, llama-bpe, qwen2 and smollm)");
    }
    root["post_processor"] = post_processor(false);
    root["decoder"] = byte_level_part(true);
    Json vocab = vocabulary();
    Json merges = Json::array();
    const auto* pairs = file_.texts("tokenizer.ggml.merges");
    require(pairs != nullptr, "there is no list tokenizer.ggml.merges");
    for (const std::string_view pair : *pairs) {
      const std::size_t space = pair.find(' ', 1);
      require(space != pair.npos && space + 1 < pair.size() && !first_invalid_utf8(pair), "the merge \"",
              printable(pair), "\" is not two tokens");
      merges.push_back({std::string(pair.substr(0, space)), std::string(pair.substr(space + 1))});
    }
    root["model"] = model(std::move(vocab), std::move(merges), nullptr, false, ignore_merges);
  }

  void with_scores(Json& root) const {
    Json vocab = vocabulary();
    const std::string space(kMetaspaceMark);
    Json steps = Json::array();
    if (file_.boolean("tokenizer.ggml.add_space_prefix").value_or(true))
      steps.push_back({{"type", "Prepend"}, {"prepend", space}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}});
    root["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
    root["post_processor"] = post_processor(true);
    Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}};
    if (steps.size() == 2) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    root["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    const auto unknown = special("unknown");
    root["model"] = model(std::move(vocab), merges_by_score(), unknown ? Json(token(*unknown)) : Json(), true, false);
  }

  static Json model(Json vocab, Json merges, Json unknown, bool byte_fallback, bool ignore_merges) {
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", std::move(unknown)},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", byte_fallback},
            {"byte_fallback", byte_fallback},
            {"ignore_merges", ignore_merges},
            {"vocab", std::move(vocab)},
            {"merges", std::move(merges)}};
  }

  // Every way to put a piece together from two others; better scores first.
  // Source: transformers, convert_slow_tokenizer.py, generate_merges.
  Json merges_by_score() const {
    const auto* scores = file_.numbers("tokenizer.ggml.scores");
    require(scores != nullptr && scores->size() == tokens_->size(),
            "tokenizer.ggml.scores must have a score for each token");
    struct Merge {
      std::string_view left, right;
      double score;
      std::int64_t left_size, right_size;  // in characters
    };
    constexpr std::size_t kLongestPiece = 512;
    std::vector<Merge> merges;
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      const std::string_view piece = (*tokens_)[id];
      if (type(id) != kNormal && type(id) != kUserDefined && type(id) != kUnused) continue;
      require(piece.size() <= kLongestPiece, "a token of ", piece.size(), " bytes, allowed are ", kLongestPiece);
      std::vector<std::pair<std::size_t, std::size_t>> parts;  // ids
      for (std::size_t at = 0; at < piece.size();) {
        at += utf8_part(piece, at).length;
        if (at == piece.size()) break;
        const auto left = ids_.find(piece.substr(0, at)), right = ids_.find(piece.substr(at));
        if (left != ids_.end() && right != ids_.end()) parts.emplace_back(left->second, right->second);
      }
      std::sort(parts.begin(), parts.end());
      for (const auto& [left, right] : parts)
        merges.push_back({(*tokens_)[left], (*tokens_)[right], (*scores)[id], characters(left), characters(right)});
    }
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
      return std::tie(a.score, a.left_size, a.right_size) > std::tie(b.score, b.left_size, b.right_size);
    });
    Json out = Json::array();
    for (const Merge& merge : merges) out.push_back({std::string(merge.left), std::string(merge.right)});
    return out;
  }

  std::int64_t characters(std::size_t id) const {
    const std::string_view text = (*tokens_)[id];
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }

  Json config() const {
    Json out{{"clean_up_tokenization_spaces", false}, {"tokenizer_class", "PreTrainedTokenizerFast"}};
    const std::pair<const char*, const char*> kNames[] = {
        {"bos_token", "bos"}, {"eos_token", "eos"}, {"unk_token", "unknown"}, {"pad_token", "padding"}};
    for (const auto& [name, key] : kNames)
      if (const auto id = special(key)) out[name] = token(*id);
    if (const auto chat = file_.text("tokenizer.chat_template")) {
      require(!first_invalid_utf8(*chat), "tokenizer.chat_template is not UTF-8");
      out["chat_template"] = *chat;
    }
    return out;
  }

  const GgufFile& file_;
  const std::vector<std::string_view>* tokens_ = nullptr;
  const std::vector<std::int64_t>* types_ = nullptr;
  mutable std::unordered_map<std::string_view, std::size_t> ids_;
};

}  // namespace

TokenizerFiles tokenizer_of_gguf(const GgufFile& file) { return Converter(file).run(); }

}  // namespace intarsia::formats
