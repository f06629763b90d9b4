#include "intarsia/data/dataset.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/data/testing_files.h"
#include "intarsia/data/token_cache.h"
#include "intarsia/formats/token_file.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::data {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kVocab = 377;  // of the fixture's model and tokenizer

const formats::Tokenizer& tokenizer() {
  static const auto loaded = formats::Tokenizer::load("tests/fixtures/hf/gpt2/model");
  return loaded;
}

std::string write_tokens(const std::string& name, const std::vector<std::int32_t>& ids,
                         std::optional<std::int32_t> end_of_text = std::nullopt) {
  const std::string path = temporary(name);
  formats::TokenFileInfo info;
  info.vocab_size = end_of_text ? 16 : 0;
  info.end_of_text = end_of_text;
  formats::TokenFileWriter writer(path, info);
  writer.append(ids);
  writer.commit();
  return path;
}

std::string fresh_folder(const std::string& name) {
  const std::string folder = temporary(name);
  std::filesystem::remove_all(folder);
  return folder;
}

struct Sample {
  Ids ids, labels;
};

Sample sample(const Dataset& dataset, std::int64_t index) {
  Sample out{Ids(static_cast<std::size_t>(dataset.seq_len())), Ids(static_cast<std::size_t>(dataset.seq_len()))};
  dataset.fill(index, out.ids.data(), out.labels.data());
  return out;
}

std::vector<Ids> all_ids(const Dataset& dataset) {
  std::vector<Ids> out;
  for (std::int64_t i = 0; i < dataset.num_samples(); ++i) out.push_back(sample(dataset, i).ids);
  return out;
}

void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no error, expected " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(TokenData, EveryTokenIsInOneSampleAcrossFiles) {
  const auto a = write_tokens("a.bin", {0, 1, 2, 3, 4}), b = write_tokens("b.bin", {5, 6, 7, 8, 9, 10});
  const auto dataset = open_dataset({.paths = {a, b}, .seq_len = 4, .vocab_size = 11});
  EXPECT_EQ(all_ids(*dataset), (std::vector<Ids>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(sample(*dataset, 1).labels, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(dataset->summary().tokens, 8);
  EXPECT_EQ(dataset->summary().dropped_tokens, 3);
  EXPECT_EQ(dataset->summary().describe(2, 4),
            "2 files, 8 tokens, 2 samples of 4 tokens, 3 tokens dropped (shorter than a sample)");
}

TEST(TokenData, EvaluationKeepsTheRestWithoutCountingItsPadding) {
  const auto path = write_tokens("a.bin", {1, 2, 3, 4, 5, 6}, 9);
  const auto dataset = open_dataset({.paths = {path}, .seq_len = 4, .tail = Tail::kPad});
  ASSERT_EQ(dataset->num_samples(), 2);
  EXPECT_EQ(sample(*dataset, 1).ids, (Ids{5, 6, 9, 9}));
  EXPECT_EQ(sample(*dataset, 1).labels, (Ids{5, 6, kNotCounted, kNotCounted}));
  EXPECT_EQ(dataset->summary().dropped_tokens, 0);
  const auto only = open_dataset({.paths = {path}, .seq_len = 64, .tail = Tail::kPad});
  EXPECT_EQ(only->num_samples(), 1);
}

TEST(TokenData, RefusesIdsOutsideTheVocabularyWithFileAndPlace) {
  const auto path = write_tokens("a.bin", {1, 2, 300, 4});
  expect_error(ErrorKind::kData, "300", [&] { open_dataset({.paths = {path}, .seq_len = 2, .vocab_size = 300}); });
  expect_error(ErrorKind::kData, path, [&] { open_dataset({.paths = {path}, .seq_len = 2, .vocab_size = 300}); });
  EXPECT_EQ(open_dataset({.paths = {path}, .seq_len = 2, .vocab_size = 301})->num_samples(), 2);
}

TEST(TokenData, RefusesStreamsShorterThanASample) {
  const auto path = write_tokens("a.bin", {1, 2, 3});
  expect_error(ErrorKind::kData, "3 tokens", [&] { open_dataset({.paths = {path}, .seq_len = 4}); });
  expect_error(ErrorKind::kConfig, "--seq-len", [&] { open_dataset({.paths = {path}, .seq_len = 1}); });
}

TEST(TokenData, PackOffCutsAtEndOfText) {
  const auto path = write_tokens("a.bin", {1, 2, 3, 9, 9, 4, 9, 5, 6}, 9);
  const auto dataset = open_dataset({.paths = {path}, .seq_len = 8, .pack = Pack::kOff});
  EXPECT_EQ(dataset->seq_len(), 4);  // of the longest document
  EXPECT_EQ(all_ids(*dataset), (std::vector<Ids>{{1, 2, 3, 9}, {4, 9, 9, 9}, {5, 6, 9, 9}}));
  EXPECT_EQ(sample(*dataset, 1).labels, (Ids{4, 9, kNotCounted, kNotCounted}));
  const auto unknown = write_tokens("b.bin", {1, 2, 3});
  expect_error(ErrorKind::kConfig, "--pack off",
               [&] { open_dataset({.paths = {unknown}, .seq_len = 8, .pack = Pack::kOff}); });
  const auto headerless = write_file("c.bin", std::string("\1\0\2\0\3\0", 6));  // u16, as nanoGPT writes
  EXPECT_EQ(
      all_ids(*open_dataset({.paths = {headerless}, .seq_len = 8, .pack = Pack::kOff, .tokenizer = &tokenizer()})),
      (std::vector<Ids>{{1, 2, 3}}));
}

TEST(TokenData, TooLongDocumentsAreRefusedCutOrLeftOut) {
  const auto path = write_tokens("a.bin", {1, 2, 9, 3, 4, 5, 6, 9}, 9);
  DataOptions options{.paths = {path}, .seq_len = 4, .pack = Pack::kOff};
  expect_error(ErrorKind::kData, "document 2 (counted from 1) has 5 tokens", [&] { open_dataset(options); });
  options.too_long = TooLong::kTruncate;
  const auto cut = open_dataset(options);
  EXPECT_EQ(all_ids(*cut), (std::vector<Ids>{{1, 2, 9, 9}, {3, 4, 5, 6}}));
  EXPECT_EQ(cut->summary().truncated_documents, 1);
  options.too_long = TooLong::kDrop;
  const auto dropped = open_dataset(options);
  EXPECT_EQ(all_ids(*dropped), (std::vector<Ids>{{1, 2, 9}}));
  EXPECT_EQ(dropped->summary().dropped_documents, 1);
  options.seq_len = 2;
  expect_error(ErrorKind::kData, "no samples", [&] { open_dataset(options); });
}

TEST(DocumentData, ConcatPutsEndOfTextAfterEachDocument) {
  const auto path = write_file("a.jsonl", "{\"text\": \"Hello there\"}\n{\"text\": \"World\"}\n");
  const auto first = tokenizer().encode("Hello there", true), second = tokenizer().encode("World", true);
  Ids expected(first.begin(), first.end());
  expected.push_back(*tokenizer().end_of_text());
  expected.insert(expected.end(), second.begin(), second.end());
  expected.push_back(*tokenizer().end_of_text());
  const auto length = static_cast<std::int64_t>(expected.size());
  const auto dataset =
      open_dataset({.paths = {path}, .seq_len = length, .vocab_size = kVocab, .tokenizer = &tokenizer()});
  EXPECT_EQ(all_ids(*dataset), (std::vector<Ids>{expected}));
  EXPECT_EQ(dataset->summary().documents, 2);
}

TEST(DocumentData, PackOffMakesADocumentASample) {
  const auto path = write_file("a.jsonl", "{\"text\": \"a b c d\"}\n{\"text\": \"b\"}\n");
  const auto dataset = open_dataset({.paths = {path}, .seq_len = 64, .pack = Pack::kOff, .tokenizer = &tokenizer()});
  ASSERT_EQ(dataset->num_samples(), 2);
  const auto ids = tokenizer().encode_document("b");
  const Sample second = sample(*dataset, 1);
  for (std::size_t i = 0; i < second.ids.size(); ++i) {
    EXPECT_EQ(second.ids[i], i < ids.size() ? ids[i] : *tokenizer().end_of_text());
    EXPECT_EQ(second.labels[i], i < ids.size() ? ids[i] : kNotCounted);
  }
}

TEST(DocumentData, RefusesWhatItCannotUseByName) {
  const auto path = write_file("a.txt", "some text that is long enough");
  expect_error(ErrorKind::kConfig, "tokenizer", [&] { open_dataset({.paths = {path}, .seq_len = 4}); });
  expect_error(ErrorKind::kConfig, "larger than the model's embedding of 100 rows",
               [&] { open_dataset({.paths = {path}, .seq_len = 4, .vocab_size = 100, .tokenizer = &tokenizer()}); });
  const auto empty = write_file("empty.txt", "");
  expect_error(ErrorKind::kData, "empty",
               [&] { open_dataset({.paths = {empty}, .seq_len = 4, .tokenizer = &tokenizer()}); });
}

TEST(DocumentData, ReadySamplesComeThroughTheSameDoor) {
  const auto path = write_samples("a.safetensors", {{"input_ids", {1, 3}, {1, 2, 3}}});
  EXPECT_EQ(all_ids(*open_dataset({.paths = {path}, .vocab_size = 4})), (std::vector<Ids>{{1, 2, 3}}));
}

TEST(TokenCache, HoldsTheSameSamplesAsMemory) {
  const auto text = write_file("a.txt", "One two three four five six seven eight nine ten.");
  const auto lines = write_file("b.jsonl", "{\"text\": \"eleven\"}\n{\"text\": \"twelve thirteen\"}\n");
  for (const Pack pack : {Pack::kConcat, Pack::kOff, Pack::kIsolate}) {
    DataOptions options{.paths = {text, lines},
                        .seq_len = 16,
                        .vocab_size = kVocab,
                        .pack = pack,
                        .too_long = TooLong::kTruncate,
                        .tokenizer = &tokenizer()};
    const auto memory = open_dataset(options);
    options.cache_dir = fresh_folder("cache");
    prepare_tokens(options);
    const auto cached = open_dataset(options);
    EXPECT_EQ(all_ids(*cached), all_ids(*memory));
    EXPECT_GT(cached->num_samples(), 1);
    EXPECT_EQ(cached->summary().documents, 3);
  }
}

TEST(TokenCache, IsMadeOnceAndKnowsItsSources) {
  const auto path = write_file("a.txt", "One two three");
  DataOptions options{.tokenizer = &tokenizer(), .cache_dir = fresh_folder("cache")};
  int calls = 0;
  std::int64_t last = 0, all = 0;
  const TokenizeProgress count = [&](std::int64_t done, std::int64_t total) {
    ++calls;
    EXPECT_GE(done, last);
    last = done;
    all = total;
  };
  const std::string cache = tokenize_to_cache({path}, options, count);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(last, 13);
  EXPECT_EQ(all, 13);
  calls = 0;
  EXPECT_EQ(tokenize_to_cache({path}, options, count), cache);
  EXPECT_EQ(calls, 0);
  const auto other = formats::Tokenizer::load("tests/fixtures/hf/llama-tied/model");
  options.tokenizer = &other;
  EXPECT_NE(token_cache_path({path}, options), cache);
  options.tokenizer = &tokenizer();
  options.train_on = formats::TrainOn::kAll;
  EXPECT_NE(token_cache_path({path}, options), cache);
  options.train_on = formats::TrainOn::kAssistant;
  EXPECT_EQ(token_cache_path({path}, options), cache);
  write_file("a.txt", "One two three four");
  EXPECT_NE(token_cache_path({path}, options), cache);
}

// Ranks that a launcher starts open their data at the same time.
TEST(TokenCache, ProcessesThatWantItAtOnceShareOne) {
  std::string text;
  for (int word = 0; word < 20000; ++word) text += "word" + std::to_string(word) + " ";
  const auto path = write_file("a.txt", text);
  const DataOptions options{.tokenizer = &tokenizer(), .cache_dir = fresh_folder("cache")};
  std::vector<pid_t> processes;
  for (int process = 0; process < 8; ++process) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    bool made = false;
    try {
      tokenize_to_cache({path}, options, [&](std::int64_t, std::int64_t) { made = true; });
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(2);
    }
    ::_exit(made ? 1 : 0);
  }
  int makers = 0;
  for (const pid_t process : processes) {
    int status = 0;
    ASSERT_EQ(::waitpid(process, &status, 0), process);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_LT(WEXITSTATUS(status), 2);
    makers += WEXITSTATUS(status);
  }
  EXPECT_EQ(makers, 1);
}

TEST(TokenCache, NothingStaysOfDocumentsThatCannotBeTokenized) {
  const auto path = write_file("a.txt", "\xFF\xFE not UTF-8");
  const std::string folder = fresh_folder("cache");
  expect_error(ErrorKind::kData, path,
               [&] { tokenize_to_cache({path}, {.tokenizer = &tokenizer(), .cache_dir = folder}); });
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace intarsia::data
