#include "intarsia/formats/documents_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::formats {
namespace {

// A chat template sees the keys in the order of the file.
using json = nlohmann::ordered_json;

constexpr int kMaxDepth = 100;

json parse(std::string_view line, const std::string& place) {
  // Deep nesting would overflow the stack of whatever walks the value later.
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    INTARSIA_CHECK(kData, depth <= kMaxDepth, place, ": JSON nested more than ", kMaxDepth, " deep");
    return true;
  };
  try {
    return json::parse(line, shallow);
  } catch (const json::exception& error) {
    // The parser's own message quotes the bytes.
    const std::optional<std::size_t> invalid = first_invalid_utf8(line);
    INTARSIA_CHECK(kData, !invalid, place, ": not UTF-8 (byte ", invalid.value_or(0),
                   " of the line); convert it, for example with iconv -t UTF-8");
    fail(ErrorKind::kData, place, ": not valid JSON: ", printable(error.what()),
         "; a JSONL file has one whole object on each line");
  }
}

std::string take_text(json& value, const char* key, const std::string& place) {
  json& text = value[key];
  INTARSIA_CHECK(kData, text.is_string(), place, ": \"", key, "\" must be a string, found ", text.type_name());
  return std::move(text.get_ref<std::string&>());
}

void read_completion(json& value, const DocumentOptions& options, Document& document) {
  for (const char* key : {"prompt", "completion"}) {
    INTARSIA_CHECK(kData, value.contains(key), document.origin, ": no \"", key,
                   "\" on this line; a prompt and its completion stand together");
  }
  document.kind = DocumentKind::kCompletion;
  document.text = take_text(value, "prompt", document.origin);
  const std::size_t begin = options.train_on == TrainOn::kAll ? 0 : document.text.size();
  document.text += take_text(value, "completion", document.origin);
  document.trained = {{begin, document.text.size()}};
}

void read_chat(const json& value, std::size_t line_bytes, const DocumentOptions& options, Document& document) {
  INTARSIA_CHECK(kConfig, options.chat != nullptr, document.origin,
                 ": has \"messages\", but the model's folder has no chat template; put a chat_template.jinja there, or "
                 "give lines with \"text\" or with \"prompt\" and \"completion\"");
  INTARSIA_CHECK(kData, line_bytes <= kMaxChatBytes, document.origin, ": a conversation of ",
                 format_bytes(static_cast<std::int64_t>(line_bytes)), ", allowed are ",
                 format_bytes(static_cast<std::int64_t>(kMaxChatBytes)));
  document.kind = DocumentKind::kChat;
  try {
    TrainingText chat = options.chat->training_text(value["messages"], value.value("tools", json()), options.train_on);
    document.text = std::move(chat.text);
    document.trained = std::move(chat.trained);
  } catch (const Error& error) {
    fail(error.kind(), document.origin, ": ", error.what());
  }
}

}  // namespace

void read_json_line(std::string_view line, const DocumentOptions& options, Document& document) {
  json value = parse(line, document.origin);
  INTARSIA_CHECK(kData, value.is_object(), document.origin,
                 ": a line must be an object such as {\"text\": \"...\"}, found ", value.type_name());
  if (value.contains("text")) {
    document.text = take_text(value, "text", document.origin);
  } else if (value.contains("messages")) {
    read_chat(value, line.size(), options, document);
  } else if (value.contains("prompt") || value.contains("completion")) {
    read_completion(value, options, document);
  } else {
    std::vector<std::string> keys;
    for (const auto& [key, unused] : value.items()) {
      if (keys.size() < 8) keys.push_back(printable(key));
    }
    fail(ErrorKind::kData, document.origin,
         ": no \"text\", \"messages\" or \"prompt\" on this line; its keys are: ", keys.empty() ? "none" : join(keys));
  }
}

}  // namespace intarsia::formats
