#include "intarsia/formats/chat_format.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/formats/documents.h"
#include "intarsia/formats/test_folder.h"
#include "intarsia/formats/training_ids.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kChatml =
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";

ChatFormat format(const std::string& source) { return ChatFormat(source, "t", {{"eos_token", "</s>"}}); }

Json messages(const std::vector<std::pair<std::string, std::string>>& turns) {
  Json out = Json::array();
  for (const auto& [role, content] : turns) out.push_back({{"role", role}, {"content", content}});
  return out;
}

const Json kTwoTurns = messages({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}});

std::vector<std::string> trained(const TrainingText& text) {
  std::vector<std::string> out;
  for (const TextSpan& span : text.trained) out.push_back(text.text.substr(span.begin, span.end - span.begin));
  return out;
}

TEST(ChatFormat, FindsWhatTheAssistantWrote) {
  const TrainingText text = format(kChatml).training_text(kTwoTurns, nullptr, TrainOn::kAssistant);
  EXPECT_EQ(text.text, "<|user|>\na</s>\n<|assistant|>\nb</s>\n<|user|>\nc</s>\n<|assistant|>\nd</s>\n");
  EXPECT_EQ(trained(text), (std::vector<std::string>{"b</s>\n", "d</s>\n"}));
  EXPECT_EQ(trained(format(kChatml).training_text(kTwoTurns, nullptr, TrainOn::kAll)),
            std::vector<std::string>{text.text});
}

TEST(ChatFormat, TakesTheTemplatesOwnMarks) {
  const TrainingText text =
      format(
          "{% for m in messages %}{% if m.role == 'assistant' %}[{% generation %}{{ m.content }}{% endgeneration %}]"
          "{% else %}{{ m.content }}{% endif %}{% endfor %}")
          .training_text(kTwoTurns, nullptr, TrainOn::kAssistant);
  EXPECT_EQ(text.text, "a[b]c[d]");
  EXPECT_EQ(trained(text), (std::vector<std::string>{"b", "d"}));
}

TEST(ChatFormat, UnderstandsATemplateThatEndsEveryTextWithEndOfText) {
  const TrainingText text = format(
                                "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% endfor %}"
                                "{% if add_generation_prompt %}<a>{% else %}{{ eos_token }}{% endif %}")
                                .training_text(kTwoTurns, nullptr, TrainOn::kAssistant);
  EXPECT_EQ(text.text, "<u>a<a>b<u>c<a>d</s>");
  EXPECT_EQ(trained(text), (std::vector<std::string>{"b", "d</s>"}));
}

TEST(ChatFormat, RefusesConversationsThatItCannotUse) {
  const auto refusal = [](const std::string& source, const Json& conversation) {
    return error_of(ErrorKind::kData,
                    [&] { format(source).training_text(conversation, nullptr, TrainOn::kAssistant); });
  };
  EXPECT_NE(refusal(kChatml, Json::array()).find("no message"), std::string::npos);
  EXPECT_NE(refusal(kChatml, "x").find("must be a list"), std::string::npos);
  EXPECT_NE(refusal(kChatml, Json::array({Json{{"content", "x"}}})).find("message 1 must be an object"),
            std::string::npos);
  EXPECT_NE(refusal(kChatml, messages({{"user", "a"}})).find("nothing to train on"), std::string::npos);
  // Thoughts are kept of the last turn only, as some published templates do.
  const char* forgets =
      "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' and loop.last %}hm {% endif %}"
      "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}";
  EXPECT_NE(refusal(forgets, kTwoTurns).find("message 2 of 4 cannot be found"), std::string::npos);
}

class ChatFolder : public TestFolder {
 protected:
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  std::string rendered() const {
    return ChatFormat::find(folder_)->render(messages({{"user", "x"}}), nullptr, false).text;
  }
};

TEST_F(ChatFolder, HoldsATemplateInEitherPlace) {
  EXPECT_FALSE(ChatFormat::find(folder_));
  write("tokenizer_config.json", R"({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": null})");
  EXPECT_FALSE(ChatFormat::find(folder_));
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<b>"}, "chat_template": "1{{ bos_token }}{{ eos_token }}"})");
  EXPECT_EQ(rendered(), "1<b>");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "2"}, {"name": "default", "template": "3"}]})");
  EXPECT_EQ(rendered(), "3");
  write("chat_template.jinja", "4{{ messages[0].content }}\n");
  EXPECT_EQ(rendered(), "4x");
  write("chat_template.jinja", "{% extends 'x' %}");
  EXPECT_NE(error_of(ErrorKind::kUnsupported, [&] { ChatFormat::find(folder_); }).find("chat_template.jinja, line 1"),
            std::string::npos);
}

TEST_F(ChatFolder, NamesTheLineOfAConversationThatIsRefused) {
  const ChatFormat chat = format(kChatml);
  write("a.jsonl", "{\"messages\": [{\"role\": \"assistant\", \"content\": \"ok\"}]}\n{\"messages\": []}\n");
  DocumentReader reader({path("a.jsonl")}, {.chat = &chat});
  Document document;
  ASSERT_TRUE(reader.next(document));
  EXPECT_EQ(document.kind, DocumentKind::kChat);
  EXPECT_NE(error_of(ErrorKind::kData, [&] { reader.next(document); }).find("a.jsonl:2: "), std::string::npos);
  DocumentReader skipping({path("a.jsonl")}, {.chat = &chat, .bad_lines = BadLines::kSkip});
  ASSERT_TRUE(skipping.next(document));
  EXPECT_FALSE(skipping.next(document));
  EXPECT_EQ(skipping.num_bad_lines(), 1);
}

std::string marked(const Tokenizer& tokenizer, const std::string& text, const std::string& part) {
  const std::size_t at = text.find(part);
  const TextSpan span{at, at + part.size()};
  const MarkedIds out = tokenizer.encode_marked(text, false, std::vector<TextSpan>{span});
  EXPECT_EQ(out.ids, tokenizer.encode(text, false)) << text;
  std::vector<std::int32_t> inside;
  for (std::size_t i = 0; i < out.ids.size(); ++i)
    if (out.marks[i]) inside.push_back(out.ids[i]);
  std::string bytes;
  for (const std::int32_t id : inside) bytes += tokenizer.token_bytes(id);
  return bytes;
}

TEST(MarkedTokens, AreThoseThatTheSpansTouch) {
  const std::string directory = "tests/fixtures/";
  for (const char* name : {"hf/gpt2/model", "hf/llama-tied/model", "hf/qwen2-tied/model", "tokenizers/llama2",
                           "tokenizers/llama2-metaspace", "tokenizers/gemma", "tokenizers/smollm"}) {
    const Tokenizer tokenizer = Tokenizer::load(directory + name);
    EXPECT_EQ(marked(tokenizer, "q\nz\xC3\xB8w\nx", "z\xC3\xB8w"), "z\xC3\xB8w") << name;
    EXPECT_EQ(marked(tokenizer, "12\n\xF0\x9F\x99\x82\n3", "\xF0\x9F\x99\x82"), "\xF0\x9F\x99\x82") << name;
  }
  const Tokenizer llama = Tokenizer::load(directory + std::string("tokenizers/llama2"));
  EXPECT_EQ(marked(llama, "x</s>a b</s>y", "a b</s>"), " a b</s>");  // the space that the normalizer puts in front
  EXPECT_EQ(marked(llama, "x</s>a b</s>y", "</s>"), "</s>");
  const Tokenizer qwen = Tokenizer::load(directory + std::string("hf/qwen2-tied/model"));
  EXPECT_EQ(marked(qwen, "e\xCC\x81 Z e\xCC\x81", "Z"), "Z");  // NFC makes the text before it shorter
}

}  // namespace
}  // namespace intarsia::formats
