#include "intarsia/formats/tokenizer_spec.h"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/tokenizer_json.h"

namespace intarsia::formats {
namespace {

using nlohmann::json;

// Reads the vocabulary, the merges and the added tokens of one file.
class Reader : TokenizerJson {
 public:
  using TokenizerJson::TokenizerJson;

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
    read_tokenizer_steps(*this, root, spec_);
    return std::move(spec_);
  }

 private:
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
    spec_.byte_fallback = boolean(model, "byte_fallback", false, "model");
    spec_.ignore_merges = boolean(model, "ignore_merges", false, "model");
    spec_.fuse_unknown = boolean(model, "fuse_unk", false, "model");

    const json& vocab = optional(model, "vocab");
    require(vocab.is_object(), "model.vocab must be an object, found ", vocab.type_name());
    require(vocab.size() <= kMaxVocabSize, "model.vocab has ", vocab.size(), " tokens, allowed are ", kMaxVocabSize);
    id_of_.reserve(vocab.size());
    for (const auto& [token, value] : vocab.items()) {
      place(token, id(value, concat("token \"", printable(token), "\"")), true);
    }
    read_merges(optional(model, "merges"));
    const json& unknown = optional(model, "unk_token");
    if (!unknown.is_null()) spec_.unknown = token_id(string(unknown, "model.unk_token"), "model.unk_token");
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

  TokenizerSpec spec_;
  std::vector<bool> placed_;
  std::unordered_map<std::string, std::int32_t> id_of_;
  std::uint64_t id_limit_ = 0;
};

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& file) { return Reader(file).read(text); }

}  // namespace intarsia::formats
