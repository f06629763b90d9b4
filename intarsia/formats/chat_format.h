// Conversations as text, the way a model's own folder says, and which part of it the assistant wrote.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/formats/chat_template/chat_template.h"

namespace intarsia::formats {

// What a loss counts of a conversation, or of a prompt and its completion.
enum class TrainOn {
  kAssistant,  // what the assistant wrote, and the tokens that end its turn; of a prompt and completion the completion
  kAll,
};

struct TrainingText {
  std::string text;
  std::vector<TextSpan> trained;  // in order
};

// A model's chat template and the special tokens that it may name.
// Threads: const members may be called at once.
class ChatFormat {
 public:
  // From a folder's chat_template.jinja, else "chat_template" of its tokenizer_config.json (of several the one called
  // "default"); none if it has neither. Special tokens come from tokenizer_config.json.
  // Errors: kIo, kFormat, kUnsupported.
  static std::optional<ChatFormat> find(const std::string& directory);
  // `variables`: an object of the names that the template sees beside the conversation, such as bos_token.
  // Errors: as ChatTemplate's.
  ChatFormat(const std::string& source, const std::string& name, const nlohmann::ordered_json& variables);

  // Everything that decides what render() gives: for records of what made a token file.
  std::string identity() const { return source_ + variables_; }

  // The text of messages (a list of {"role", "content", ...}); `tools`: a list or null. With `open` the template adds
  // what stands before the assistant's next words.
  // Errors: kData for messages of another form and for what the template refuses.
  RenderedChat render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools, bool open) const;

  // The text to train on. A template that has {% generation %} says itself what the assistant wrote. For others message
  // i is what the conversation up to it has more than the one before it with the opening of the assistant's turn; a
  // template that writes an earlier message in another way than the last one is refused.
  // Errors: as render(); kData for a conversation without a message, or without one of the assistant.
  TrainingText training_text(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                             TrainOn train_on) const;

 private:
  std::vector<TextSpan> assistant_spans(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                        const std::string& whole) const;

  ChatTemplate template_;
  std::string source_;
  std::string variables_;  // JSON text
  std::string end_of_text_;
};

}  // namespace intarsia::formats
