#include "intarsia/train/chat.h"

#include <optional>

#include "intarsia/base/error.h"

namespace intarsia::train {
namespace {

// The special token that a template writes behind an answer, found by an answer that is easy to find. None where it
// writes another one, or does not take these two turns.
std::optional<std::int32_t> end_of_turn(const formats::ChatFormat& chat, const formats::Tokenizer& tokenizer) {
  const std::string answer = "Intarsia";
  const nlohmann::ordered_json turns = {{{"role", "user"}, {"content", "Who?"}},
                                        {{"role", "assistant"}, {"content", answer}}};
  std::string text;
  try {
    text = chat.render(turns, nullptr, false).text;
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::size_t found = text.rfind(answer);
  if (found == std::string::npos) return std::nullopt;
  const std::vector<std::int32_t> behind = tokenizer.encode(text.substr(found + answer.size()), false);
  if (behind.empty() || !tokenizer.is_special(behind[0])) return std::nullopt;
  return behind[0];
}

}  // namespace

std::vector<std::int64_t> open_answer(const formats::ChatFormat& format, const formats::Tokenizer& tokenizer,
                                      const nlohmann::ordered_json& messages) {
  const std::vector<std::int32_t> ids = tokenizer.encode(format.render(messages, nullptr, true).text, false);
  return {ids.begin(), ids.end()};
}

std::vector<std::int64_t> stop_ids(const formats::HfConfig& config, const formats::Tokenizer* tokenizer,
                                   const formats::ChatFormat* chat) {
  std::vector<std::int64_t> stops = config.eos_token_ids;
  if (tokenizer == nullptr) return stops;
  if (const auto end = tokenizer->end_of_text()) stops.push_back(*end);
  if (chat == nullptr) return stops;
  if (const auto end = end_of_turn(*chat, *tokenizer)) stops.push_back(*end);
  return stops;
}

Conversation::Conversation(const formats::ChatFormat& format, const formats::Tokenizer& tokenizer,
                           std::int64_t max_tokens, const std::string& system)
    : format_(format), tokenizer_(tokenizer), max_tokens_(max_tokens) {
  if (system.empty()) return;
  messages_.push_back({{"role", "system"}, {"content", system}});
  first_turn_ = 1;
}

std::vector<std::int64_t> Conversation::ask(const std::string& words) {
  messages_.push_back({{"role", "user"}, {"content", words}});
  while (true) {
    std::vector<std::int64_t> ids = open_answer(format_, tokenizer_, messages_);
    if (static_cast<std::int64_t>(ids.size()) <= max_tokens_) return ids;
    INTARSIA_CHECK(kUsage, messages_.size() > first_turn_ + 1, "the question has ", ids.size(),
                   " tokens with what the chat template adds; allowed: ", max_tokens_,
                   ", the model's maximum less --max-new-tokens");
    const auto oldest = messages_.begin() + static_cast<std::ptrdiff_t>(first_turn_);
    messages_.erase(oldest, oldest + 2);
  }
}

}  // namespace intarsia::train
