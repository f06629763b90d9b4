#include "intarsia/formats/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "intarsia/base/error.h"

namespace intarsia::formats {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::vector<std::string> kModels = {"llama-gqa",  "llama-tied",   "llama-rope-old", "llama-rope-v5",
                                          "llama-bf16", "mistral-full", "mistral-window", "qwen2-tied",
                                          "qwen3",      "gpt2",         "gpt2-hub"};

std::string model_dir(const std::string& model) { return "tests/fixtures/hf/" + model + "/model"; }

// Where a tokenizer and what the Hugging Face library makes of texts with it stand: a model of fixtures/hf, or one of
// fixtures/tokenizers.
struct Fixture {
  std::string name;
  std::string directory() const { return is_model() ? model_dir(name) : "tests/fixtures/tokenizers/" + name; }
  std::string reference() const {
    return (is_model() ? "tests/fixtures/hf/" : "tests/fixtures/tokenizers/") + name + "/reference.json";
  }
  bool is_model() const { return std::find(kModels.begin(), kModels.end(), name) != kModels.end(); }
};

json read_json(const std::string& path) {
  std::ifstream in(path);
  return json::parse(in);
}

json tokenizer_json(const std::string& model) { return read_json(model_dir(model) + "/tokenizer.json"); }

Tokenizer from_json(const json& root) {
  return Tokenizer(parse_tokenizer_json(root.dump(), "t.json"), "t.json", std::nullopt);
}

// The message of the error that reading `root` gives; empty if it is read.
std::string refusal(const json& root, ErrorKind kind) {
  try {
    from_json(root);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return {};
}

class ReferenceTest : public testing::TestWithParam<Fixture> {};

TEST_P(ReferenceTest, EncodesAsTheReference) {
  const Tokenizer tokenizer = Tokenizer::load(GetParam().directory());
  const json reference = read_json(GetParam().reference());
  EXPECT_EQ(tokenizer.vocab_size(), reference[GetParam().is_model() ? "tokenizer_vocab" : "vocab"].get<std::int64_t>());
  ASSERT_GE(reference["tokenizer_cases"].size(), 40u);
  for (const json& c : reference["tokenizer_cases"]) {
    const auto text = c["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, false), c["ids"].get<Ids>()) << c["text"];
    EXPECT_EQ(tokenizer.encode(text, true), c["ids_with_special"].get<Ids>()) << c["text"];
  }
}

TEST_P(ReferenceTest, DecodesAsTheReference) {
  const Tokenizer tokenizer = Tokenizer::load(GetParam().directory());
  const json reference = read_json(GetParam().reference());
  for (const char* list : {"tokenizer_cases", "decode_cases"}) {
    for (const json& c : reference[list]) {
      const auto ids = c["ids"].get<Ids>();
      EXPECT_EQ(tokenizer.decode(ids, false), c["decoded"].get<std::string>()) << c["ids"];
      EXPECT_EQ(tokenizer.decode(ids, true), c["decoded_skip_special"].get<std::string>()) << c["ids"];
    }
  }
}

TEST_P(ReferenceTest, StreamsTheSameText) {
  const Tokenizer tokenizer = Tokenizer::load(GetParam().directory());
  const json reference = read_json(GetParam().reference());
  for (const char* list : {"tokenizer_cases", "decode_cases"}) {
    for (const json& c : reference[list]) {
      StreamDecoder decoder(tokenizer, false);
      std::string text;
      for (const auto id : c["ids"].get<Ids>()) text += decoder.push(id);
      text += decoder.finish();
      EXPECT_EQ(text, c["decoded"].get<std::string>()) << c["ids"];
    }
  }
}

std::vector<Fixture> fixtures() {
  std::vector<Fixture> all;
  for (const std::string& model : kModels) all.push_back({model});
  for (const char* name :
       {"llama2", "llama2-metaspace", "llama2-split", "gemma", "smollm", "numbers", "unknown", "dropped"})
    all.push_back({name});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceTest, testing::ValuesIn(fixtures()), [](const auto& fixture) {
  std::string name = fixture.param.name;
  std::erase(name, '-');
  return name;
});

TEST(Tokenizer, FindsTheEndOfText) {
  EXPECT_EQ(Tokenizer::load(model_dir("llama-gqa")).end_of_text(), 365);
  EXPECT_EQ(Tokenizer::load(model_dir("gpt2")).end_of_text(), 0);
  EXPECT_EQ(Tokenizer::load(model_dir("qwen2-tied")).end_of_text(), 412);  // <|im_end|>, not <|endoftext|>
}

TEST(Tokenizer, EndsADocumentWithEndOfText) {
  const Tokenizer tokenizer = Tokenizer::load(model_dir("llama-gqa"));
  Ids expected = tokenizer.encode("the river", true);
  EXPECT_EQ(expected.front(), 364);
  expected.push_back(365);
  EXPECT_EQ(tokenizer.encode_document("the river"), expected);
}

TEST(Tokenizer, CountsTheBytesOfTheText) {
  const Tokenizer tokenizer = Tokenizer::load(model_dir("llama-gqa"));
  const std::string text = "smörgås <|eot_id|>\xF0\x9F\x98\x80";
  EXPECT_EQ(tokenizer.text_bytes(tokenizer.encode_document(text)),
            static_cast<std::int64_t>(text.size() - std::string("<|eot_id|>").size()));
}

TEST(Tokenizer, LetsUnknownIdsStandForNothing) {
  const Tokenizer tokenizer = Tokenizer::load(model_dir("qwen2-tied"));
  EXPECT_EQ(tokenizer.decode(Ids{64, 430, 64}, false), "aa");
  EXPECT_THROW(tokenizer.decode(Ids{-1}, false), Error);
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer = Tokenizer::load(model_dir("gpt2"));
  try {
    tokenizer.encode("abc\xFF", false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("byte 3 of 4"), std::string::npos) << error.what();
  }
}

TEST(Tokenizer, EncodesAVeryLongWord) {
  const Tokenizer tokenizer = Tokenizer::load(model_dir("gpt2"));
  for (const std::string piece : {"the", " ", "\n", ".", "9"}) {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += piece;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false), false), text);
  }
}

TEST(Tokenizer, ReportsProgressOverTheWholeText) {
  const Tokenizer tokenizer = Tokenizer::load(model_dir("gpt2"));
  std::string text;
  while (text.size() < 3'000'000) text += "a lantern nothing ";
  std::size_t done = 0;
  tokenizer.encode(text, false, [&](std::size_t bytes) { done += bytes; });
  EXPECT_LE(done, text.size());
  EXPECT_GT(done, text.size() - 300'000);
}

TEST(AddedTokens, TakeTheSpacesTheyAskFor) {
  json root = tokenizer_json("gpt2");
  const Tokenizer plain = from_json(root);
  root["added_tokens"].push_back({{"id", 377}, {"content", "<r>"}, {"rstrip", true}, {"special", true}});
  root["added_tokens"].push_back({{"id", 378}, {"content", "cat"}, {"single_word", true}, {"normalized", true}});
  const Tokenizer tokenizer = from_json(root);
  EXPECT_EQ(tokenizer
                .encode("`<r> \xC2\xA0\n"
                        "a",
                        false)
                .size(),
            3u);
  EXPECT_EQ(tokenizer.encode("concatenate", false), plain.encode("concatenate", false));
  EXPECT_EQ(tokenizer.encode("cat", false), Ids{378});
  EXPECT_EQ(tokenizer.encode("cat.", false).front(), 378);
  EXPECT_EQ(tokenizer.encode("cat\xC3\xA9", false), plain.encode("cat\xC3\xA9", false));
}

TEST(AddedTokens, PreferTheLongest) {
  json root = tokenizer_json("gpt2");
  root["added_tokens"].push_back({{"id", 377}, {"content", "<x"}, {"normalized", false}});
  root["added_tokens"].push_back({{"id", 378}, {"content", "<x><y>"}, {"normalized", false}});
  const Tokenizer tokenizer = from_json(root);
  EXPECT_EQ(tokenizer.encode("<x><y>", false), Ids{378});
  EXPECT_EQ(tokenizer.encode("<x><y", false).front(), 377);
}

TEST(TokenizerJson, RefusesUnknownPartsByName) {
  const json good = tokenizer_json("llama-gqa");
  const auto with = [&](const char* pointer, const json& value) {
    json root = good;
    root[json::json_pointer(pointer)] = value;
    return refusal(root, ErrorKind::kUnsupported);
  };
  EXPECT_NE(with("/normalizer", {{"type", "Lowercase"}}).find("normalizer Lowercase"), std::string::npos);
  EXPECT_NE(with("/pre_tokenizer", {{"type", "Whitespace"}}).find("pre_tokenizer Whitespace"), std::string::npos);
  EXPECT_NE(with("/pre_tokenizer", nullptr).find("without ByteLevel"), std::string::npos);
  EXPECT_NE(with("/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "(a+)+$"}}).find("(a+)+$"), std::string::npos);
  EXPECT_NE(with("/post_processor", {{"type", "BertProcessing"}}).find("BertProcessing"), std::string::npos);
  EXPECT_NE(with("/decoder", {{"type", "WordPiece"}}).find("decoder WordPiece"), std::string::npos);
  EXPECT_NE(with("/model/type", "Unigram").find("model Unigram"), std::string::npos);
  EXPECT_NE(with("/model/dropout", 0.1).find("dropout"), std::string::npos);
  EXPECT_NE(with("/model/end_of_word_suffix", "</w>").find("end_of_word_suffix"), std::string::npos);
  EXPECT_NE(with("/model/byte_fallback", true).find("byte_fallback together with"), std::string::npos);
  EXPECT_NE(with("/surprise", 1).find("surprise"), std::string::npos);
}

TEST(TokenizerJson, RefusesUnknownPartsOfTheFallbackKind) {
  const json good = read_json("tests/fixtures/tokenizers/llama2/tokenizer.json");
  const auto with = [&](const char* pointer, const json& value) {
    json root = good;
    root[json::json_pointer(pointer)] = value;
    return refusal(root, ErrorKind::kUnsupported);
  };
  EXPECT_NE(with("/normalizer/normalizers/1/pattern", {{"Regex", " "}}).find("normalizer Replace"), std::string::npos);
  EXPECT_NE(with("/decoder/decoders/0/content", "_").find("decoder Replace"), std::string::npos);
  EXPECT_NE(with("/decoder/decoders/3/start", 2).find("decoder Strip"), std::string::npos);
  EXPECT_NE(with("/decoder/decoders/2", {{"type", "CTC"}}).find("CTC"), std::string::npos);
  EXPECT_NE(with("/decoder", {{"type", "Metaspace"}}).find("decoder Metaspace"), std::string::npos);
}

TEST(TokenizerJson, RefusesMalformedVocabularies) {
  const json good = tokenizer_json("llama-gqa");
  const auto with = [&](const char* pointer, const json& value) {
    json root = good;
    root[json::json_pointer(pointer)] = value;
    return refusal(root, ErrorKind::kFormat);
  };
  EXPECT_NE(with("/model/vocab/!", 2).find("two tokens"), std::string::npos);
  EXPECT_NE(with("/model/vocab/!", 4'000'000'000u).find("no gap"), std::string::npos);
  EXPECT_NE(with("/model/vocab/!", -1).find("no gap"), std::string::npos);
  EXPECT_NE(with("/model/vocab/!", "0").find("no gap"), std::string::npos);
  EXPECT_NE(with("/model/merges/0", {"q", "zzz"}).find("not in the vocabulary"), std::string::npos);
  EXPECT_NE(with("/model/merges/0", "three parts here").find("merges[0]"), std::string::npos);
  EXPECT_NE(with("/model/merges/1", good["model"]["merges"][0]).find("repeats"), std::string::npos);
  EXPECT_NE(with("/added_tokens/0/id", 365).find("added twice"), std::string::npos);
  EXPECT_NE(with("/added_tokens/0/content", "").find("empty"), std::string::npos);
  EXPECT_NE(with("/model/vocab", json::array()).find("object"), std::string::npos);
  json gap = good;
  gap["model"]["vocab"].erase("!");
  EXPECT_FALSE(refusal(gap, ErrorKind::kFormat).empty());
}

// As the Hugging Face library does it.
TEST(Tokenizer, GivesUnknownCharactersTheUnknownToken) {
  json root = read_json("tests/fixtures/tokenizers/llama2/tokenizer.json");
  json& vocab = root["model"]["vocab"];
  vocab["<0xZZ>"] = vocab["<0x41>"];
  vocab.erase("<0x41>");                             // of A, which is no token by itself
  const Ids x = from_json(root).encode("x", false);  // U+2581 and x
  EXPECT_EQ(from_json(root).encode("AAx", false), (Ids{x[0], 0, x[1]}));
  root["model"]["fuse_unk"] = false;
  EXPECT_EQ(from_json(root).encode("AAx", false), (Ids{x[0], 0, 0, x[1]}));
  root["model"]["unk_token"] = nullptr;
  EXPECT_EQ(from_json(root).encode("AAx", false), x);
  EXPECT_EQ(from_json(root).encode_marked("A</s>", false, std::vector<TextSpan>{{0, 1}}).marks,
            (std::vector<bool>{true, false}));
}

TEST(TokenizerJson, RefusesWhatIsNotJson) {
  EXPECT_THROW(parse_tokenizer_json("{\"model\": ", "t.json"), Error);
  EXPECT_THROW(parse_tokenizer_json(std::string(100'000, '['), "t.json"), Error);
  EXPECT_THROW(parse_tokenizer_json("[]", "t.json"), Error);
  EXPECT_THROW(Tokenizer::load("tests/fixtures/no-such-folder"), Error);
}

// Cut anywhere, or with any byte changed: an error or a tokenizer that encodes, never a crash.
TEST(TokenizerJson, SurvivesDamage) {
  for (const char* path :
       {"tests/fixtures/tokenizers/llama2/tokenizer.json", "tests/fixtures/hf/qwen3/model/tokenizer.json"}) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    std::uint32_t state = 3;
    for (int round = 0; round < 300; ++round) {
      std::string bad = text.str();
      for (int i = 0; i < 2; ++i) {
        state = state * 1664525 + 1013904223;
        bad[(state >> 4) % bad.size()] = "0\"[]{},:1-eftn \\"[state % 17];
      }
      if (round % 10 == 0) bad.resize((state >> 4) % bad.size());
      try {
        Tokenizer(parse_tokenizer_json(bad, "t.json"), "t.json", std::nullopt)
            .encode("a </s>\xC3\xA9 1<|im_end|>", true);
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace intarsia::formats
