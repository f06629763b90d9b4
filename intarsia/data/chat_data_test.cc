// Documents with boundaries and marks of their own: chats, completions, Megatron's files; packing, weights, splits.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "intarsia/base/error.h"
#include "intarsia/data/dataset.h"
#include "intarsia/data/testing_files.h"
#include "intarsia/formats/token_file.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::data {
namespace {

using Ids = std::vector<std::int64_t>;

const formats::Tokenizer& tokenizer() {
  static const auto loaded = formats::Tokenizer::load("tests/fixtures/hf/gpt2/model");
  return loaded;
}

struct Sample {
  Ids ids, labels, positions;
};

Sample sample(const Dataset& dataset, std::int64_t index) {
  const auto size = static_cast<std::size_t>(dataset.seq_len());
  Sample out{Ids(size), Ids(size), Ids(size)};
  dataset.fill(index, out.ids.data(), out.labels.data());
  dataset.positions(index, out.positions.data());
  return out;
}

std::string write_documents(const std::string& name, const std::vector<std::vector<std::int32_t>>& documents,
                            const std::vector<std::vector<bool>>& marks = {}) {
  const std::string path = temporary(name);
  formats::TokenFileWriter writer(path, {.vocab_size = 100});
  for (std::size_t i = 0; i < documents.size(); ++i)
    writer.append_document(documents[i], marks.empty() ? std::vector<bool>() : marks[i]);
  writer.commit();
  return path;
}

TEST(MarkedData, OnlyTrainedTokensHaveLabels) {
  const auto path = write_documents("a.bin", {{1, 2, 3}, {4, 5, 6, 7}}, {{}, {false, false, true, true}});
  const auto concat = open_dataset({.paths = {path}, .seq_len = 7});
  EXPECT_EQ(sample(*concat, 0).ids, (Ids{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(sample(*concat, 0).labels, (Ids{1, 2, 3, kNotCounted, kNotCounted, 6, 7}));
  EXPECT_EQ(concat->summary().trained_tokens, 5);
  const auto off = open_dataset({.paths = {path}, .seq_len = 7, .pack = Pack::kOff});
  EXPECT_EQ(sample(*off, 1).labels, (Ids{kNotCounted, kNotCounted, 6, 7}));
  EXPECT_EQ(off->summary().padding_tokens, 1);
}

TEST(MarkedData, IsolateTakesWholeDocumentsThatFit) {
  const auto path = write_documents("a.bin", {{1, 2, 3}, {4, 5}, {6, 7, 8, 9}, {10, 11}});
  const auto dataset = open_dataset({.paths = {path}, .seq_len = 6, .pack = Pack::kIsolate});
  ASSERT_EQ(dataset->num_samples(), 2);
  EXPECT_TRUE(dataset->is_isolated());
  const Sample first = sample(*dataset, 0), second = sample(*dataset, 1);
  EXPECT_EQ(first.ids, (Ids{1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(first.labels, (Ids{1, 2, 3, kNotCounted, 5, kNotCounted}));
  EXPECT_EQ(first.positions, (Ids{0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(second.ids, (Ids{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(second.labels, (Ids{6, 7, 8, 9, kNotCounted, 11}));
  EXPECT_EQ(second.positions, (Ids{0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(dataset->summary().padding_tokens, 1);
  EXPECT_THROW(open_dataset({.paths = {path}, .seq_len = 3, .pack = Pack::kIsolate}), Error);
}

TEST(MarkedData, PromptsHaveNoLabels) {
  const auto path = write_file("a.jsonl", "{\"prompt\": \"2+2=\", \"completion\": \"4\"}\n");
  DataOptions options{.paths = {path}, .seq_len = 32, .pack = Pack::kOff, .tokenizer = &tokenizer()};
  const auto dataset = open_dataset(options);
  const auto ids = tokenizer().encode_document("2+2=4");
  const Sample only = sample(*dataset, 0);
  EXPECT_EQ(only.ids, Ids(ids.begin(), ids.end()));
  Ids labels = only.ids;
  std::fill(labels.begin(), labels.end() - 2, kNotCounted);  // all but "4" and the end-of-text token
  EXPECT_EQ(only.labels, labels);
  options.train_on = formats::TrainOn::kAll;
  EXPECT_EQ(sample(*open_dataset(options), 0).labels, only.ids);
}

TEST(MarkedData, ChatsCountTheAssistantsWords) {
  const auto path = write_file("a.jsonl",
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
                               "\"content\": \"yes\"}, {\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                               "\"assistant\", \"content\": \"b\"}]}\n");
  const formats::ChatFormat chat(
      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{{ eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}<a>{% endif %}",
      "t", {{"eos_token", "<|endoftext|>"}});
  DataOptions options{.paths = {path}, .seq_len = 64, .pack = Pack::kOff, .tokenizer = &tokenizer(), .chat = &chat};
  const auto dataset = open_dataset(options);
  const std::string text = "<u>hi<|endoftext|><a>yes<|endoftext|><u>a<|endoftext|><a>b<|endoftext|>";
  const auto ids = tokenizer().encode(text, false);
  const Sample only = sample(*dataset, 0);
  EXPECT_EQ(only.ids, Ids(ids.begin(), ids.end()));
  std::string counted;
  for (const std::int64_t label : only.labels)
    if (label != kNotCounted) counted += tokenizer().token_bytes(static_cast<std::int32_t>(label));
  EXPECT_EQ(counted, "yes<|endoftext|>b<|endoftext|>");
  options.chat = nullptr;
  EXPECT_THROW(open_dataset(options), Error);
}

TEST(IndexedData, KeepsTheBoundariesOfMegatronsDocuments) {
  const std::string folder = "tests/fixtures/checkpoints/indexed/";
  for (const char* name : {"i32_sentences", "i32_text", "i64_text", "u16_text", "u8_text", "u16_multimodal"}) {
    const std::string prefix = folder + name + "_document";
    std::ifstream in(prefix + ".expected.json");
    const auto expected = nlohmann::json::parse(in);
    std::vector<Ids> documents;
    std::size_t longest = 0;
    for (const auto& document : expected["documents"]) {
      Ids ids;
      for (const auto& sequence : document)
        for (const auto& id : sequence) ids.push_back(id.get<std::int64_t>());
      longest = std::max(longest, ids.size());
      if (ids.size() > 1) documents.push_back(std::move(ids));  // one token has no target
    }
    for (const char* ending : {".bin", ".idx"}) {
      const auto dataset = open_dataset({.paths = {prefix + ending}, .seq_len = 2048, .pack = Pack::kOff});
      ASSERT_EQ(dataset->num_samples(), static_cast<std::int64_t>(documents.size())) << name;
      for (std::size_t i = 0; i < documents.size(); ++i) {
        Ids ids = sample(*dataset, static_cast<std::int64_t>(i)).ids;
        ids.resize(documents[i].size());
        EXPECT_EQ(ids, documents[i]) << name << " " << i;
      }
    }
  }
}

TEST(Mixture, GivesEachSourceItsShare) {
  const auto a = write_documents("a.bin", {{1, 1}, {2, 2}}),
             b = write_documents("b.bin", {{3, 3}, {4, 4}, {5, 5}, {6, 6}});
  const auto dataset = open_dataset({.paths = {a + ":0.6", b + ":0.4"}, .seq_len = 2});
  ASSERT_EQ(dataset->num_samples(), 10);
  Ids firsts;
  for (std::int64_t i = 0; i < 10; ++i) firsts.push_back(sample(*dataset, i).ids[0]);
  EXPECT_EQ(firsts, (Ids{1, 3, 2, 4, 1, 2, 5, 1, 6, 2}));
  EXPECT_NE(dataset->summary().describe(10, 2).find("a.bin x 3"), std::string::npos);
  EXPECT_NE(dataset->summary().describe(10, 2).find("b.bin x 1"), std::string::npos);
}

TEST(Mixture, IsNotForEvaluation) {
  const auto a = write_documents("a.bin", {{1, 1}, {2, 2}});
  EXPECT_THROW(open_dataset({.paths = {a + ":0.6"}, .seq_len = 2, .tail = Tail::kPad}), Error);
}

TEST(Split, HoldsOutAShareThatTrainingNeverSees) {
  std::vector<std::vector<std::int32_t>> documents;
  for (int i = 0; i < 40; ++i) documents.push_back({i, i});
  const auto a = write_documents("a.bin", documents);
  const auto firsts = [](const Dataset& dataset) {
    std::set<std::int64_t> out;
    for (std::int64_t i = 0; i < dataset.num_samples(); ++i) out.insert(sample(dataset, i).ids[0]);
    return out;
  };
  const TrainAndEval split = open_split({.paths = {a}, .seq_len = 2}, 0.1, 42);
  EXPECT_EQ(split.train->num_samples(), 36);
  EXPECT_EQ(split.train->summary().held_out_samples, 4);
  EXPECT_EQ(split.eval->num_samples(), 4);
  std::set<std::int64_t> all = firsts(*split.train);
  const auto held = firsts(*split.eval);
  for (const std::int64_t id : held) EXPECT_FALSE(all.contains(id));
  all.insert(held.begin(), held.end());
  EXPECT_EQ(all.size(), 40u);
  EXPECT_EQ(firsts(*open_split({.paths = {a}, .seq_len = 2}, 0.1, 42).eval), held);
  EXPECT_NE(firsts(*open_split({.paths = {a}, .seq_len = 2}, 0.1, 43).eval), held);
  // With weights the small source comes several times, and still none of what was held out.
  const TrainAndEval mixed =
      open_split({.paths = {a + ":1", write_documents("b.bin", {{90, 90}, {91, 91}}) + ":1"}, .seq_len = 2}, 0.5, 1);
  EXPECT_EQ(mixed.eval->num_samples(), 21);
  for (const std::int64_t id : firsts(*mixed.eval)) EXPECT_FALSE(firsts(*mixed.train).contains(id));
  EXPECT_THROW(open_split({.paths = {a}, .seq_len = 2}, 0.001, 42), Error);
  EXPECT_THROW(open_split({.paths = {a}, .seq_len = 2}, 1, 42), Error);
}

}  // namespace
}  // namespace intarsia::data
