// The parts of a tokenizer.json around its vocabulary: normalizer, pre_tokenizer, post_processor, decoder.
#include <nlohmann/json.hpp>

#include "intarsia/formats/tokenizer_json.h"

namespace intarsia::formats {
namespace {

using nlohmann::json;

class StepReader {
 public:
  StepReader(const TokenizerJson& file, TokenizerSpec& spec) : file_(file), spec_(spec) {}

  void read(const json& root) {
    read_normalizer(file_.optional(root, "normalizer"), "normalizer");
    read_pre_tokenizer(file_.optional(root, "pre_tokenizer"), "pre_tokenizer");
    if (byte_level_ && spec_.byte_fallback) file_.refuse("model.byte_fallback together with pre_tokenizer ByteLevel");
    if (!byte_level_ && !spec_.byte_fallback) {
      file_.refuse("pre_tokenizer without ByteLevel and model without byte_fallback (a BPE over words)");
    }
    read_post_processor(file_.optional(root, "post_processor"), "post_processor");
    const json& decoder = file_.optional(root, "decoder");
    if (spec_.byte_fallback) {
      read_fallback_decoder(decoder);
    } else {
      read_byte_level_decoder(decoder);
    }
  }

 private:
  void read_normalizer(const json& part, std::string_view where) {
    if (part.is_null()) return;
    const std::string type = file_.type_of(part, where);
    if (type == "NFC") {
      file_.check_keys(part, "normalizer NFC", {"type"});
      spec_.normalize.push_back({NormalizeStep::kNfc});
    } else if (type == "Prepend") {
      file_.check_keys(part, "normalizer Prepend", {"type", "prepend"});
      const std::string& text = file_.string(file_.optional(part, "prepend"), "prepend of normalizer Prepend");
      spec_.normalize.push_back({NormalizeStep::kPrepend, "", limited(text, "normalizer Prepend")});
    } else if (type == "Replace") {
      file_.check_keys(part, "normalizer Replace", {"type", "pattern", "content"});
      const std::string& from = string_pattern(part, "normalizer Replace");
      const std::string& to = file_.string(file_.optional(part, "content"), "content of normalizer Replace");
      spec_.normalize.push_back(
          {NormalizeStep::kReplace, limited(from, "normalizer Replace"), limited(to, "normalizer Replace")});
    } else if (type == "Sequence" && where == "normalizer") {
      file_.check_keys(part, "normalizer Sequence", {"type", "normalizers"});
      for (const json& inner : file_.list(part, "normalizers", "normalizer Sequence")) {
        read_normalizer(inner, "normalizer in a Sequence");
      }
    } else {
      file_.refuse("normalizer ", printable(type));
    }
  }

  // A replacement in a hostile file must not blow up the text that it is applied to.
  const std::string& limited(const std::string& text, std::string_view where) const {
    file_.require(text.size() <= 16, where, ": a text of ", text.size(), " bytes, allowed are 16");
    return text;
  }

  // The one fixed text that a part looks for.
  const std::string& string_pattern(const json& part, std::string_view where) const {
    const json& pattern = file_.optional(part, "pattern");
    file_.check_keys(pattern, concat("pattern of ", where), {"Regex", "String"});
    if (!pattern.contains("String")) file_.refuse(where, " by the pattern ", file_.shown(pattern));
    const std::string& text = file_.string(pattern["String"], concat("pattern of ", where));
    file_.require(!text.empty(), where, ": the pattern is empty");
    return text;
  }

  void read_pre_tokenizer(const json& part, std::string_view where) {
    if (part.is_null()) return;
    // ByteLevel turns text into its byte alphabet: what follows it would see other characters.
    if (byte_level_) file_.refuse("a pre_tokenizer after ByteLevel");
    const std::string type = file_.type_of(part, where);
    if (type == "ByteLevel") {
      file_.check_keys(part, "pre_tokenizer ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (file_.boolean(part, "add_prefix_space", true, where)) spec_.steps.push_back({PreTokenizeStep::kPrefixSpace});
      if (file_.boolean(part, "use_regex", true, where)) add_words(WordPattern::kGpt2);
      byte_level_ = true;
    } else if (type == "Digits") {
      file_.check_keys(part, "pre_tokenizer Digits", {"type", "individual_digits"});
      add_words(file_.boolean(part, "individual_digits", false, where) ? WordPattern::kDigits : WordPattern::kNumbers);
    } else if (type == "Split") {
      read_split(part);
    } else if (type == "Metaspace") {
      read_metaspace(part);
    } else if (type == "Sequence" && where == "pre_tokenizer") {
      file_.check_keys(part, "pre_tokenizer Sequence", {"type", "pretokenizers"});
      for (const json& inner : file_.list(part, "pretokenizers", "pre_tokenizer Sequence")) {
        read_pre_tokenizer(inner, "pre_tokenizer in a Sequence");
      }
    } else {
      file_.refuse("pre_tokenizer ", printable(type));
    }
  }

  void add_words(WordPattern pattern) { spec_.steps.push_back({PreTokenizeStep::kWords, pattern}); }

  void read_split(const json& part) {
    file_.check_keys(part, "pre_tokenizer Split", {"type", "pattern", "behavior", "invert"});
    const json& pattern = file_.optional(part, "pattern");
    file_.check_keys(pattern, "pattern of pre_tokenizer Split", {"Regex", "String"});
    const std::string& behavior = file_.string(file_.optional(part, "behavior"), "behavior of pre_tokenizer Split");
    const bool invert = file_.boolean(part, "invert", false, "pre_tokenizer Split");
    if (!pattern.contains("Regex")) {
      // Gemma's: cuts at spaces, of which its normalizer has left none.
      if (string_pattern(part, "pre_tokenizer Split") == " " && replaces_spaces()) return;
      file_.refuse("pre_tokenizer Split by the string ", file_.shown(pattern["String"]));
    }
    const std::string& regex = file_.string(pattern["Regex"], "pattern of pre_tokenizer Split");
    // The known patterns match every character, so keeping the matches and removing the rest is the same.
    if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) {
      file_.refuse("pre_tokenizer Split with behavior ", printable(behavior), " and invert ",
                   invert ? "true" : "false");
    }
    for (const WordPattern known : {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2}) {
      if (regex == source(known)) return add_words(known);
    }
    file_.refuse("pre_tokenizer Split by the pattern ", printable(regex),
                 " (known are those of GPT-2, Llama 3 and Qwen2)");
  }

  bool replaces_spaces() const {
    bool gone = false;
    for (const NormalizeStep& step : spec_.normalize) {
      gone = (gone || (step.kind == NormalizeStep::kReplace && step.from == " ")) && step.to.find(' ') == step.to.npos;
    }
    return gone;
  }

  void read_metaspace(const json& part) {
    file_.check_keys(part, "pre_tokenizer Metaspace",
                     {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    const std::string& replacement =
        file_.string(file_.optional(part, "replacement"), "replacement of pre_tokenizer Metaspace");
    if (replacement != kMetaspaceMark)
      file_.refuse("pre_tokenizer Metaspace with replacement ", printable(replacement));
    const json& scheme = file_.optional(part, "prepend_scheme");
    const std::string word = scheme.is_null() ? "always" : file_.string(scheme, "prepend_scheme of Metaspace");
    PreTokenizeStep step{PreTokenizeStep::kMetaspace};
    if (word == "first") {
      step.prepend = PreTokenizeStep::kFirst;
    } else if (word == "always") {
      step.prepend = PreTokenizeStep::kAlways;
    } else if (word != "never") {
      file_.refuse("pre_tokenizer Metaspace with prepend_scheme ", printable(word));
    }
    // The spelling of older files.
    if (!file_.boolean(part, "add_prefix_space", true, "Metaspace")) step.prepend = PreTokenizeStep::kNever;
    spec_.steps.push_back(step);
    if (file_.boolean(part, "split", true, "pre_tokenizer Metaspace")) add_words(WordPattern::kMetaspace);
  }

  void read_post_processor(const json& part, std::string_view where) {
    if (part.is_null()) return;
    const std::string type = file_.type_of(part, where);
    if (type == "ByteLevel") {  // moves offsets only
      file_.check_keys(part, "post_processor ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else if (type == "TemplateProcessing") {
      read_template(part);
    } else if (type == "Sequence" && where == "post_processor") {
      file_.check_keys(part, "post_processor Sequence", {"type", "processors"});
      for (const json& inner : file_.list(part, "processors", "post_processor Sequence")) {
        read_post_processor(inner, "post_processor in a Sequence");
      }
    } else {
      file_.refuse("post_processor ", printable(type));
    }
  }

  void read_template(const json& part) {
    const std::string where = "post_processor TemplateProcessing";
    file_.check_keys(part, where, {"type", "single", "pair", "special_tokens"});
    std::vector<std::int32_t> before, after;
    bool seen_text = false;
    for (const json& piece : file_.list(part, "single", where)) {
      file_.require(piece.is_object() && piece.size() == 1, where, ": a piece of \"single\" is ", file_.shown(piece));
      if (piece.contains("Sequence")) {
        file_.require(!seen_text && file_.optional(piece["Sequence"], "id") == "A", where,
                      ": \"single\" must have text A once");
        seen_text = true;
        continue;
      }
      file_.require(piece.contains("SpecialToken") && piece["SpecialToken"].is_object(), where,
                    ": a piece of \"single\" is ", file_.shown(piece), ", known are Sequence and SpecialToken");
      const std::string& token = file_.string(file_.optional(piece["SpecialToken"], "id"), where);
      const json& tokens = file_.optional(part, "special_tokens");
      file_.require(tokens.is_object() && tokens.contains(token) && tokens[token].is_object(), where, ": \"",
                    printable(token), "\" is not in special_tokens");
      for (const json& value : file_.list(tokens[token], "ids", where)) {
        file_.require(value.is_number_unsigned() && value.get<std::uint64_t>() < spec_.tokens.size(), where, ": id ",
                      file_.shown(value), " is not in the vocabulary of ", spec_.tokens.size());
        (seen_text ? after : before).push_back(value.get<std::int32_t>());
      }
    }
    file_.require(seen_text, where, ": \"single\" has no text");
    spec_.prefix.insert(spec_.prefix.begin(), before.begin(), before.end());
    spec_.suffix.insert(spec_.suffix.end(), after.begin(), after.end());
  }

  void read_byte_level_decoder(const json& part) const {
    if (part.is_null()) file_.refuse("a missing decoder (a byte-level BPE has ByteLevel)");
    const std::string type = file_.type_of(part, "decoder");
    if (type != "ByteLevel") file_.refuse("decoder ", printable(type), " (a byte-level BPE has ByteLevel)");
    file_.check_keys(part, "decoder ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  }

  // U+2581 back to a space, byte tokens back to bytes, then perhaps one space less at the begin.
  void read_fallback_decoder(const json& part) {
    if (part.is_null()) file_.refuse("a missing decoder (a BPE with byte_fallback has a Sequence)");
    const std::string type = file_.type_of(part, "decoder");
    if (type != "Sequence") file_.refuse("decoder ", printable(type), " (a BPE with byte_fallback has a Sequence)");
    file_.check_keys(part, "decoder Sequence", {"type", "decoders"});
    std::string chain;
    for (const json& inner : file_.list(part, "decoders", "decoder Sequence")) {
      const std::string kind = file_.type_of(inner, "decoder in a Sequence");
      chain += (chain.empty() ? "" : ", ") + printable(kind);
      if (kind == "Replace") {
        file_.check_keys(inner, "decoder Replace", {"type", "pattern", "content"});
        const std::string& to = file_.string(file_.optional(inner, "content"), "content of decoder Replace");
        if (string_pattern(inner, "decoder Replace") != kMetaspaceMark || to != " ") {
          file_.refuse("decoder Replace other than of U+2581 by a space");
        }
      } else if (kind == "Strip") {
        file_.check_keys(inner, "decoder Strip", {"type", "content", "start", "stop"});
        if (file_.optional(inner, "content") != " " || file_.optional(inner, "start") != 1 ||
            file_.optional(inner, "stop") != 0) {
          file_.refuse("decoder Strip other than of one space at the begin");
        }
        spec_.strip_first_space = true;
      }
    }
    if (chain != "Replace, ByteFallback, Fuse" && chain != "Replace, ByteFallback, Fuse, Strip") {
      file_.refuse("decoder Sequence of ", chain, " (known is Replace, ByteFallback, Fuse, Strip)");
    }
  }

  const TokenizerJson& file_;
  TokenizerSpec& spec_;
  bool byte_level_ = false;
};

}  // namespace

void read_tokenizer_steps(const TokenizerJson& file, const json& root, TokenizerSpec& spec) {
  StepReader(file, spec).read(root);
}

}  // namespace intarsia::formats
