#include "intarsia/train/chat.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "intarsia/base/error.h"

namespace intarsia::train {
namespace {

const std::string kFolder = "tests/fixtures/hf/llama-gqa/model";
constexpr const char* kTemplate =
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|eot_id|>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

const formats::Tokenizer& tokenizer() {
  static const auto loaded = formats::Tokenizer::load(kFolder);
  return loaded;
}

formats::ChatFormat format(const char* source) { return {source, "test", nlohmann::ordered_json::object()}; }

std::string text_of(const std::vector<std::int64_t>& ids) {
  return tokenizer().decode(std::vector<std::int32_t>(ids.begin(), ids.end()), false);
}

TEST(Conversation, GoesOnInTheTemplatesWords) {
  const formats::ChatFormat chat = format(kTemplate);
  Conversation conversation(chat, tokenizer(), 1000, "Be brief.");
  EXPECT_EQ(text_of(conversation.ask("Is it far?")),
            "system: Be brief.<|eot_id|>\nuser: Is it far?<|eot_id|>\nassistant: ");
  conversation.answered("No.");
  EXPECT_EQ(text_of(conversation.ask("And then?")),
            "system: Be brief.<|eot_id|>\nuser: Is it far?<|eot_id|>\nassistant: "
            "No.<|eot_id|>\nuser: And then?<|eot_id|>\nassistant: ");
}

TEST(Conversation, ForgetsTheOldestTurnsWhenThereIsNoRoom) {
  const formats::ChatFormat chat = format(kTemplate);
  const std::size_t one = Conversation(chat, tokenizer(), 1000, "Be brief.").ask("Is it far?").size();
  Conversation conversation(chat, tokenizer(), static_cast<std::int64_t>(one), "Be brief.");
  conversation.ask("Is it far?");
  conversation.answered("No.");
  EXPECT_EQ(text_of(conversation.ask("Is it far?")),
            "system: Be brief.<|eot_id|>\nuser: Is it far?<|eot_id|>\nassistant: ");
  conversation.answered("No.");
  try {
    conversation.ask("Is it far from here to the next village?");
    ADD_FAILURE() << "took more than there is room for";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
  }
}

// Of a base model's config that names only the end of a text.
TEST(StopIds, HaveTheTokenThatEndsATurn) {
  formats::HfConfig config;
  config.eos_token_ids = {7};
  const formats::ChatFormat chat = format(kTemplate), refusing = format("{{ raise_exception('no') }}");
  const std::int64_t end = tokenizer().encode("<|eot_id|>", false).at(0);
  const auto has = [](const std::vector<std::int64_t>& ids, std::int64_t id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  EXPECT_FALSE(has(stop_ids(config, &tokenizer(), nullptr), end));
  EXPECT_TRUE(has(stop_ids(config, &tokenizer(), &chat), end));
  EXPECT_TRUE(has(stop_ids(config, &tokenizer(), &chat), 7));
  EXPECT_EQ(stop_ids(config, &tokenizer(), &refusing), stop_ids(config, &tokenizer(), nullptr));
  EXPECT_EQ(stop_ids(config, nullptr, nullptr), std::vector<std::int64_t>{7});
}

}  // namespace
}  // namespace intarsia::train
