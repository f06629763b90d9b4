// Chat templates of Hugging Face models: the part of Jinja that published ones use.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "intarsia/formats/tokenizer.h"

namespace intarsia::formats {

struct RenderedChat {
  std::string text;
  std::vector<TextSpan> generated;  // what {% generation %} blocks printed, in order
};

// A template is untrusted: it sees the variables that are given, and nothing it does has an effect but its text. What
// it may use is limited (2 million steps, 512 MiB of text put together). Threads: const members may be called at once.
// Copies share the template.
class ChatTemplate {
 public:
  // Reads the source; `name` is for messages. Supported are if, for, set, macro, generation, break and continue; most
  // filters and tests; the methods of texts and dicts; docs/chat_templates.md lists them.
  // Errors, each with name and line: kFormat; kUnsupported with the statement, filter or test that is not built.
  ChatTemplate(const std::string& source, std::string name);

  // Renders as Hugging Face's apply_chat_template. `variables` is an object: messages, add_generation_prompt, tools,
  // bos_token and so on.
  // Errors, with name and line: kData for what the template raises, for values it cannot work with, and for limits.
  RenderedChat render(const nlohmann::ordered_json& variables) const;

  // Whether the template itself says, by {% generation %}, what the assistant wrote.
  bool marks_generation() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace intarsia::formats
