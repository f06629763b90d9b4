#include "intarsia/formats/tokenizer_config.h"

#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/json.h"

namespace intarsia::formats {
namespace {

// The tokenizer_config.json of older models lists every added token: about 150 bytes each.
constexpr std::size_t kMaxConfigBytes = 16u << 20;

const JsonValue* read_key(const std::string& path, const char* key, JsonValue& storage) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nullptr;
  storage = read_json_file(path, {.max_bytes = kMaxConfigBytes});
  const JsonMember* member = storage.find(key);
  return member == nullptr || member->value.kind == JsonValue::Kind::kNull ? nullptr : &member->value;
}

std::optional<std::int32_t> id_of(const std::string& token, const TokenizerSpec& spec) {
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.tokens[i] == token) return static_cast<std::int32_t>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int32_t> find_end_of_text(const std::string& directory, const TokenizerSpec& spec) {
  const std::filesystem::path folder(directory);
  JsonValue root;

  const std::string tokenizer_config = (folder / "tokenizer_config.json").string();
  if (const JsonValue* value = read_key(tokenizer_config, "eos_token", root)) {
    // Either the token itself or an object that describes it.
    if (const JsonMember* content = value->find("content")) value = &content->value;
    INTARSIA_CHECK(kFormat, value->kind == JsonValue::Kind::kString, tokenizer_config, ": eos_token is ", value->show(),
                   ", expected a token");
    const std::optional<std::int32_t> id = id_of(value->text, spec);
    INTARSIA_CHECK(kFormat, id, tokenizer_config, ": eos_token \"", printable(value->text),
                   "\" is not in the vocabulary of tokenizer.json");
    return id;
  }

  const std::string config = (folder / "config.json").string();
  if (const JsonValue* value = read_key(config, "eos_token_id", root)) {
    if (value->kind == JsonValue::Kind::kArray && !value->items.empty()) value = &value->items.front();
    const std::optional<std::int64_t> id = value->as_integer();
    INTARSIA_CHECK(kFormat, id && *id >= 0 && *id < static_cast<std::int64_t>(spec.tokens.size()), config,
                   ": eos_token_id is ", value->show(), ", but tokenizer.json has the ids 0 to ",
                   spec.tokens.size() - 1);
    return static_cast<std::int32_t>(*id);
  }

  for (const char* usual : {"<|endoftext|>", "<|end_of_text|>"}) {
    for (const AddedToken& token : spec.added) {
      if (token.content == usual) return token.id;
    }
  }
  return std::nullopt;
}

}  // namespace intarsia::formats
