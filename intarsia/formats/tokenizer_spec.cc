#include "intarsia/formats/tokenizer_spec.h"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

using nlohmann::json;

// Reads one file; every message begins with its name.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  TokenizerSpec read(std::string_view text) {
    const json root = parse(text);
    check_keys(root, "the file",
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                "decoder", "model"});
    if (root.contains("version")) {
      require(root["version"] == "1.0", "version is ", shown(root["version"]), ", known is \"1.0\"");
    }
    require(root.contains("model"), "there is no \"model\"");
    // Ids have no gap, so none reaches the number of tokens: a large one must not make us allocate.
    id_limit_ = optional(optional(root, "model"), "vocab").size() + optional(root, "added_tokens").size();
    read_model(root["model"]);
    read_added(optional(root, "added_tokens"));
    check_ids();
    read_normalizer(optional(root, "normalizer"));
    read_pre_tokenizer(optional(root, "pre_tokenizer"), "pre_tokenizer");
    if (!byte_level_) refuse("pre_tokenizer without ByteLevel (only byte-level BPE is built)");
    read_post_processor(optional(root, "post_processor"), "post_processor");
    read_decoder(optional(root, "decoder"));
    return std::move(spec_);
  }

 private:
  template <typename... Parts>
  void require(bool holds, const Parts&... parts) const {
    if (!holds) fail(ErrorKind::kFormat, file_, ": ", parts...);
  }
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kUnsupported, file_, ": this tokenizer needs ", parts..., ", which is not supported");
  }

  static std::string shown(const json& value) {
    return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  json parse(std::string_view text) const {
    // Deep nesting would overflow the stack of whatever walks the value later.
    const auto shallow = [&](int depth, json::parse_event_t, json&) {
      require(depth <= 16, "lists and objects are nested more than 16 deep");
      return true;
    };
    try {
      return json::parse(text, shallow);
    } catch (const json::exception& error) {
      fail(ErrorKind::kFormat, file_, ": not valid JSON: ", printable(error.what()));
    }
  }

  void check_keys(const json& object, std::string_view where, std::initializer_list<std::string_view> known) const {
    require(object.is_object(), where, " must be an object, found ", object.type_name());
    for (const auto& [key, value] : object.items()) {
      bool found = false;
      for (const std::string_view k : known) found = found || key == k;
      if (!found) refuse("key \"", printable(key), "\" of ", where);
    }
  }

  static const json& optional(const json& object, const char* key) {
    static const json null;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }

  bool boolean(const json& object, const char* key, bool otherwise, std::string_view where) const {
    const json& value = optional(object, key);
    if (value.is_null()) return otherwise;
    require(value.is_boolean(), where, ": \"", key, "\" must be true or false, found ", shown(value));
    return value.get<bool>();
  }

  const std::string& string(const json& value, std::string_view where) const {
    require(value.is_string(), where, " must be a string, found ", value.type_name());
    return value.get_ref<const std::string&>();
  }

  std::string type_of(const json& part, std::string_view where) const {
    require(part.is_object(), where, " must be an object, found ", part.type_name());
    return string(optional(part, "type"), concat("\"type\" of ", where));
  }

  std::int32_t id(const json& value, std::string_view where) const {
    require(value.is_number_unsigned() && value.get<std::uint64_t>() < id_limit_, "id of ", where, " is ", shown(value),
            ", but ids have no gap and there are ", id_limit_, " tokens");
    return value.get<std::int32_t>();
  }

  // Gives a token its id; the same token may come twice (in the vocabulary and as added), two tokens may not share one.
  void place(const std::string& token, std::int32_t at, bool in_model) {
    const auto index = static_cast<std::size_t>(at);
    if (index >= spec_.tokens.size()) {
      spec_.tokens.resize(index + 1);
      spec_.in_model.resize(index + 1);
      placed_.resize(index + 1);
    }
    require(!placed_[index] || spec_.tokens[index] == token, "id ", at, " stands for two tokens, \"",
            printable(spec_.tokens[index]), "\" and \"", printable(token), "\"");
    const auto [known, fresh] = id_of_.emplace(token, at);
    require(known->second == at, "token \"", printable(token), "\" has two ids, ", known->second, " and ", at);
    spec_.tokens[index] = token;
    placed_[index] = true;
    if (in_model) spec_.in_model[index] = true;
  }

  void check_ids() const {
    require(!spec_.tokens.empty(), "the vocabulary is empty");
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      require(placed_[i], "no token has id ", i, ", though ids go up to ", placed_.size() - 1);
    }
  }

  void read_model(const json& model) {
    require(model.is_object(), "model must be an object, found ", model.type_name());
    const std::string type = model.contains("type") ? type_of(model, "model") : "BPE";  // old files leave it out
    if (type != "BPE") refuse("model ", printable(type), " (only BPE is built)");
    check_keys(model, "model",
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
    const json& dropout = optional(model, "dropout");
    if (!dropout.is_null() && dropout != 0.0) refuse("model.dropout ", shown(dropout));
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json& value = optional(model, affix);
      if (!value.is_null() && value != "") refuse("model.", affix, " ", shown(value));
    }
    if (boolean(model, "byte_fallback", false, "model")) {
      refuse("model.byte_fallback (tokenizers in the manner of Llama 2)");
    }
    spec_.ignore_merges = boolean(model, "ignore_merges", false, "model");
    // unk_token and fuse_unk never act: the reader demands a token for every byte.

    const json& vocab = optional(model, "vocab");
    require(vocab.is_object(), "model.vocab must be an object, found ", vocab.type_name());
    require(vocab.size() <= kMaxVocabSize, "model.vocab has ", vocab.size(), " tokens, allowed are ", kMaxVocabSize);
    id_of_.reserve(vocab.size());
    for (const auto& [token, value] : vocab.items()) {
      place(token, id(value, concat("token \"", printable(token), "\"")), true);
    }
    read_merges(optional(model, "merges"));
  }

  void read_merges(const json& merges) {
    require(merges.is_array(), "model.merges must be a list, found ", merges.type_name());
    require(merges.size() <= kMaxVocabSize, "model.merges has ", merges.size(), " entries, allowed are ",
            kMaxVocabSize);
    spec_.merges.reserve(merges.size());
    for (const json& merge : merges) {
      const std::string where = concat("model.merges[", spec_.merges.size(), "]");
      std::string left, right;
      if (merge.is_string()) {
        const std::string& both = merge.get_ref<const std::string&>();
        const std::size_t space = both.find(' ');
        require(space != std::string::npos && both.find(' ', space + 1) == std::string::npos, where, " is ",
                shown(merge), ", expected two tokens and one space between them");
        left = both.substr(0, space);
        right = both.substr(space + 1);
      } else {
        require(merge.is_array() && merge.size() == 2, where, " is ", shown(merge), ", expected two tokens");
        left = string(merge[0], where);
        right = string(merge[1], where);
      }
      spec_.merges.push_back({token_id(left, where), token_id(right, where), token_id(left + right, where)});
    }
  }

  std::int32_t token_id(const std::string& token, std::string_view where) const {
    const auto found = id_of_.find(token);
    require(found != id_of_.end(), where, ": \"", printable(token), "\" is not in the vocabulary");
    return found->second;
  }

  void read_added(const json& added) {
    if (added.is_null()) return;
    require(added.is_array(), "added_tokens must be a list, found ", added.type_name());
    require(added.size() <= kMaxAddedTokens, "added_tokens has ", added.size(), " entries, allowed are ",
            kMaxAddedTokens);
    std::unordered_set<std::int32_t> added_ids;
    for (const json& entry : added) {
      const std::string where = concat("added_tokens[", spec_.added.size(), "]");
      check_keys(entry, where, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token;
      token.content = string(optional(entry, "content"), concat("content of ", where));
      require(!token.content.empty(), where, " is empty");
      token.id = id(optional(entry, "id"), where);
      token.special = boolean(entry, "special", false, where);
      token.single_word = boolean(entry, "single_word", false, where);
      token.lstrip = boolean(entry, "lstrip", false, where);
      token.rstrip = boolean(entry, "rstrip", false, where);
      token.normalized = boolean(entry, "normalized", !token.special, where);
      require(added_ids.insert(token.id).second, where, ": id ", token.id, " is added twice");
      place(token.content, token.id, false);
      spec_.added.push_back(std::move(token));
    }
  }

  void read_normalizer(const json& part) {
    if (part.is_null()) return;
    const std::string type = type_of(part, "normalizer");
    if (type == "NFC") {
      check_keys(part, "normalizer NFC", {"type"});
      spec_.nfc = true;
    } else if (type == "Sequence") {
      check_keys(part, "normalizer Sequence", {"type", "normalizers"});
      for (const json& inner : list(part, "normalizers", "normalizer Sequence")) {
        if (type_of(inner, "normalizer") == "Sequence") refuse("a normalizer Sequence inside another");
        read_normalizer(inner);
      }
    } else {
      refuse("normalizer ", printable(type));
    }
  }

  const json& list(const json& part, const char* key, std::string_view where) const {
    const json& value = optional(part, key);
    require(value.is_array(), where, ": \"", key, "\" must be a list, found ", value.type_name());
    require(value.size() <= 64, where, ": \"", key, "\" has ", value.size(), " entries, allowed are 64");
    return value;
  }

  void read_pre_tokenizer(const json& part, std::string_view where) {
    if (part.is_null()) return;
    // ByteLevel turns text into its byte alphabet: what follows it would see other characters.
    if (byte_level_) refuse("a pre_tokenizer after ByteLevel");
    const std::string type = type_of(part, where);
    if (type == "ByteLevel") {
      check_keys(part, "pre_tokenizer ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (boolean(part, "add_prefix_space", true, where)) spec_.steps.push_back({PreTokenizeStep::kPrefixSpace});
      if (boolean(part, "use_regex", true, where)) {
        spec_.steps.push_back({PreTokenizeStep::kWords, WordPattern::kGpt2});
      }
      byte_level_ = true;
    } else if (type == "Split") {
      read_split(part);
    } else if (type == "Sequence" && where == "pre_tokenizer") {
      check_keys(part, "pre_tokenizer Sequence", {"type", "pretokenizers"});
      for (const json& inner : list(part, "pretokenizers", "pre_tokenizer Sequence")) {
        read_pre_tokenizer(inner, "pre_tokenizer in a Sequence");
      }
    } else {
      refuse("pre_tokenizer ", printable(type));
    }
  }

  void read_split(const json& part) {
    check_keys(part, "pre_tokenizer Split", {"type", "pattern", "behavior", "invert"});
    const json& pattern = optional(part, "pattern");
    check_keys(pattern, "pattern of pre_tokenizer Split", {"Regex", "String"});
    if (!pattern.contains("Regex")) refuse("pre_tokenizer Split by the string ", shown(optional(pattern, "String")));
    const std::string& regex = string(pattern["Regex"], "pattern of pre_tokenizer Split");
    const std::string& behavior = string(optional(part, "behavior"), "behavior of pre_tokenizer Split");
    const bool invert = boolean(part, "invert", false, "pre_tokenizer Split");
    // The known patterns match every character, so keeping the matches and removing the rest is the same.
    if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) {
      refuse("pre_tokenizer Split with behavior ", printable(behavior), " and invert ", invert ? "true" : "false");
    }
    for (const WordPattern known : {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2}) {
      if (regex == source(known)) {
        spec_.steps.push_back({PreTokenizeStep::kWords, known});
        return;
      }
    }
    refuse("pre_tokenizer Split by the pattern ", printable(regex), " (known are those of GPT-2, Llama 3 and Qwen2)");
  }

  void read_post_processor(const json& part, std::string_view where) {
    if (part.is_null()) return;
    const std::string type = type_of(part, where);
    if (type == "ByteLevel") {  // moves offsets only
      check_keys(part, "post_processor ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else if (type == "TemplateProcessing") {
      read_template(part);
    } else if (type == "Sequence" && where == "post_processor") {
      check_keys(part, "post_processor Sequence", {"type", "processors"});
      for (const json& inner : list(part, "processors", "post_processor Sequence")) {
        read_post_processor(inner, "post_processor in a Sequence");
      }
    } else {
      refuse("post_processor ", printable(type));
    }
  }

  void read_template(const json& part) {
    const std::string where = "post_processor TemplateProcessing";
    check_keys(part, where, {"type", "single", "pair", "special_tokens"});
    std::vector<std::int32_t> before, after;
    bool seen_text = false;
    for (const json& piece : list(part, "single", where)) {
      require(piece.is_object() && piece.size() == 1, where, ": a piece of \"single\" is ", shown(piece));
      if (piece.contains("Sequence")) {
        require(!seen_text && optional(piece["Sequence"], "id") == "A", where, ": \"single\" must have text A once");
        seen_text = true;
        continue;
      }
      require(piece.contains("SpecialToken") && piece["SpecialToken"].is_object(), where, ": a piece of \"single\" is ",
              shown(piece), ", known are Sequence and SpecialToken");
      const std::string& token = string(optional(piece["SpecialToken"], "id"), where);
      const json& tokens = optional(part, "special_tokens");
      require(tokens.is_object() && tokens.contains(token) && tokens[token].is_object(), where, ": \"",
              printable(token), "\" is not in special_tokens");
      for (const json& value : list(tokens[token], "ids", where)) {
        const std::int32_t special = id(value, where);
        require(static_cast<std::size_t>(special) < spec_.tokens.size(), where, ": id ", special,
                " is not in the vocabulary of ", spec_.tokens.size());
        (seen_text ? after : before).push_back(special);
      }
    }
    require(seen_text, where, ": \"single\" has no text");
    spec_.prefix.insert(spec_.prefix.begin(), before.begin(), before.end());
    spec_.suffix.insert(spec_.suffix.end(), after.begin(), after.end());
  }

  void read_decoder(const json& part) {
    if (part.is_null()) refuse("a missing decoder (only ByteLevel is built)");
    const std::string type = type_of(part, "decoder");
    if (type != "ByteLevel") refuse("decoder ", printable(type), " (only ByteLevel is built)");
    check_keys(part, "decoder ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  }

  const std::string& file_;
  TokenizerSpec spec_;
  std::vector<bool> placed_;
  std::unordered_map<std::string, std::int32_t> id_of_;
  std::uint64_t id_limit_ = 0;
  bool byte_level_ = false;
};

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& file) { return Reader(file).read(text); }

}  // namespace intarsia::formats
