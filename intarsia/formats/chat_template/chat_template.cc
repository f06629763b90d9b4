#include "intarsia/formats/chat_template/chat_template.h"

#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/formats/chat_template/evaluator.h"
#include "intarsia/formats/chat_template/lexer.h"
#include "intarsia/formats/chat_template/parser.h"
#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::formats {

struct ChatTemplate::Impl {
  std::string name;
  chat::Program program;
};

ChatTemplate::ChatTemplate(const std::string& source, std::string name) {
  constexpr std::size_t kMaxBytes = 1 << 20;
  INTARSIA_CHECK(kFormat, source.size() <= kMaxBytes, name, ": a template of ", source.size(), " bytes, allowed are ",
                 kMaxBytes);
  INTARSIA_CHECK(kFormat, !first_invalid_utf8(source), name, ": the template is not UTF-8");
  auto impl = std::make_shared<Impl>();
  impl->name = std::move(name);
  impl->program = chat::parse(chat::lex(source, impl->name), impl->name);
  impl_ = std::move(impl);
}

RenderedChat ChatTemplate::render(const nlohmann::ordered_json& variables) const {
  chat::Dict values;
  for (const auto& [key, value] : variables.items()) values.emplace_back(key, chat::Value::of(value));
  chat::Evaluator evaluator(impl_->program, std::move(values), impl_->name);
  RenderedChat out{evaluator.run(), {}};
  for (const auto& [begin, end] : evaluator.generated()) out.generated.push_back({begin, end});
  return out;
}

bool ChatTemplate::marks_generation() const { return impl_->program.marks_generation; }

}  // namespace intarsia::formats
