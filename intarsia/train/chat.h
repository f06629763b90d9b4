// A conversation with a model, in turns, as its chat template writes them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "intarsia/formats/chat_format.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::train {

// The tokens that open the assistant's answer to `messages`. Errors: those of ChatFormat::render; kData for text that
// is not UTF-8.
std::vector<std::int64_t> open_answer(const formats::ChatFormat& format, const formats::Tokenizer& tokenizer,
                                      const nlohmann::ordered_json& messages);

// Tokens that end a text: the config's, the tokenizer's end of text and, with a `chat` format (may be null), what its
// template writes behind the assistant's words, which some configs do not name.
std::vector<std::int64_t> stop_ids(const formats::HfConfig& config, const formats::Tokenizer* tokenizer,
                                   const formats::ChatFormat* chat);

class Conversation {
 public:
  // `system`: the first message, unless it is empty. What a turn opens with has at most `max_tokens` tokens.
  // Lifetime: format and tokenizer outlive it.
  Conversation(const formats::ChatFormat& format, const formats::Tokenizer& tokenizer, std::int64_t max_tokens,
               const std::string& system);

  // Adds what the user says; returns the tokens that open the answer. Where they would be too many, the oldest turns
  // are forgotten. Errors: as open_answer; kUsage when the words alone are too long.
  std::vector<std::int64_t> ask(const std::string& words);
  void answered(const std::string& words) { messages_.push_back({{"role", "assistant"}, {"content", words}}); }

 private:
  const formats::ChatFormat& format_;
  const formats::Tokenizer& tokenizer_;
  std::int64_t max_tokens_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::size_t first_turn_ = 0;  // 1 behind a system message
};

}  // namespace intarsia::train
