#include "intarsia/formats/chat_format.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxConfigBytes = 16u << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Json read_config(const std::string& path) {
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    INTARSIA_CHECK(kFormat, depth <= 32, path, ": lists and objects are nested more than 32 deep");
    return true;
  };
  try {
    return Json::parse(io::read_text_file(path, kMaxConfigBytes), shallow);
  } catch (const Json::exception& error) {
    fail(ErrorKind::kFormat, path, ": not valid JSON: ", printable(error.what()));
  }
}

// Of several templates the one called "default".
std::optional<std::string> template_of(const Json& config, const std::string& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  INTARSIA_CHECK(kFormat, found->is_array(), path, ": chat_template must be a text or a list of named ones, found ",
                 found->type_name());
  for (const Json& one : *found) {
    if (one.is_object() && one.value("name", Json()) == "default" && one.value("template", Json()).is_string())
      return one["template"].get<std::string>();
  }
  fail(ErrorKind::kUnsupported, path, ": of the list chat_template none is called \"default\"");
}

Json special_tokens(const Json& config) {
  Json out = Json::object();
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (found->is_string()) out[name] = *found;
    // Older files describe the token.
    if (found->is_object() && found->value("content", Json()).is_string()) out[name] = (*found)["content"];
  }
  return out;
}

void check_messages(const Json& messages) {
  INTARSIA_CHECK(kData, messages.is_array(), "\"messages\" must be a list, found ", messages.type_name());
  INTARSIA_CHECK(kData, !messages.empty(), "the conversation has no message");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    INTARSIA_CHECK(kData, messages[i].is_object() && messages[i].value("role", Json()).is_string(), "message ", i + 1,
                   " must be an object with a text \"role\"");
  }
}

bool is_by_assistant(const Json& message) { return message["role"] == "assistant"; }

}  // namespace

std::optional<ChatFormat> ChatFormat::find(const std::string& directory) {
  const fs::path config_path = fs::path(directory) / "tokenizer_config.json";
  const fs::path file = fs::path(directory) / "chat_template.jinja";
  Json config = Json::object();
  if (is_there(config_path)) config = read_config(config_path.string());
  INTARSIA_CHECK(kFormat, config.is_object(), config_path.string(), " must hold an object");
  std::optional<std::string> source;
  std::string name = file.string();
  if (is_there(file)) {
    source = io::read_text_file(name, kMaxConfigBytes);
  } else {
    name = config_path.string() + ", chat_template";
    source = template_of(config, config_path.string());
  }
  if (!source) return std::nullopt;
  return ChatFormat(*source, name, special_tokens(config));
}

ChatFormat::ChatFormat(const std::string& source, const std::string& name, const Json& variables)
    : template_(source, name),
      source_(source),
      variables_(variables.dump()),
      end_of_text_(variables.value("eos_token", std::string())) {}

RenderedChat ChatFormat::render(const Json& messages, const Json& tools, bool open) const {
  Json variables = Json::parse(variables_);
  variables["messages"] = messages;
  variables["tools"] = tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = open;
  return template_.render(variables);
}

TrainingText ChatFormat::training_text(const Json& messages, const Json& tools, TrainOn train_on) const {
  check_messages(messages);
  RenderedChat whole = render(messages, tools, false);
  TrainingText out{std::move(whole.text), {}};
  if (train_on == TrainOn::kAll) {
    out.trained = {{0, out.text.size()}};
  } else if (template_.marks_generation()) {
    out.trained = std::move(whole.generated);
  } else {
    out.trained = assistant_spans(messages, tools, out.text);
  }
  INTARSIA_CHECK(kData, !out.trained.empty(), "the assistant says nothing in this conversation of ", messages.size(),
                 " messages, so there is nothing to train on; --train-on all counts everything");
  return out;
}

std::vector<TextSpan> ChatFormat::assistant_spans(const Json& messages, const Json& tools,
                                                  const std::string& whole) const {
  std::vector<TextSpan> spans;
  Json before = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!is_by_assistant(messages[i])) {
      before.push_back(messages[i]);
      continue;
    }
    const std::string opened = render(before, tools, true).text;
    before.push_back(messages[i]);
    std::string closed = i + 1 == messages.size() ? whole : render(before, tools, false).text;
    // Some templates end every text, not every turn, with the end-of-text token.
    if (!whole.starts_with(closed) && !end_of_text_.empty() && closed.ends_with(end_of_text_))
      closed.resize(closed.size() - end_of_text_.size());
    INTARSIA_CHECK(kData, whole.starts_with(closed) && closed.starts_with(opened), "message ", i + 1, " of ",
                   messages.size(),
                   " cannot be found in the conversation's text, as the chat template writes it in another way when "
                   "other messages follow; mark the assistant's words in chat_template.jinja with {% generation %} and "
                   "{% endgeneration %}, or use --train-on all");
    if (closed.size() > opened.size()) spans.push_back({opened.size(), closed.size()});
  }
  return spans;
}

}  // namespace intarsia::formats
