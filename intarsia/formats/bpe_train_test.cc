#include "intarsia/formats/bpe_train.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "intarsia/base/error.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

TEST(BpeMerges, AppliesTheStrongestLeftmostFirst) {
  // Ranks: (1,2) -> 10, (0,1) -> 11, (10,2) -> 12.
  const BpeMerges merges({{1, 2, 10}, {0, 1, 11}, {10, 2, 12}});
  std::vector<std::int32_t> tokens = {0, 1, 2, 0, 1, 1, 2, 2};
  merges.apply(tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{0, 10, 11, 12}));
}

TEST(BpeMerges, TreatsLongWordsAsShortOnes) {
  // A chain of merges over a repeated pattern: both ways must agree on words that differ only in length.
  std::vector<BpeMerge> list;
  for (std::int32_t i = 0; i < 4; ++i) list.push_back({i, (i * 3 + 1) % 4, 4 + i});
  for (std::int32_t i = 4; i < 8; ++i) list.push_back({i, (i * 5 + 2) % 8, 4 + i});
  const BpeMerges merges(list);
  // A token 99 that never merges separates the words, so a long word is the short ones one after another.
  std::vector<std::int32_t> together, apart;
  std::uint32_t random = 1;
  for (int word = 0; word < 50; ++word) {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 20; ++i)
      tokens.push_back(static_cast<std::int32_t>((random = random * 1664525 + 1013904223) >> 30));
    tokens.push_back(99);
    together.insert(together.end(), tokens.begin(), tokens.end());
    merges.apply(tokens);
    apart.insert(apart.end(), tokens.begin(), tokens.end());
  }
  EXPECT_LT(apart.size(), together.size());
  merges.apply(together);
  EXPECT_EQ(together, apart);
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  BpeTrainer trainer({.vocab_size = 260});
  trainer.add("abab abab cd cd");  // words: "abab", " abab", " cd" twice
  const TrainedBpe bpe = trainer.train();
  ASSERT_EQ(bpe.merges.size(), 3u);
  EXPECT_EQ(bpe.tokens[256], "ab");    // 4 times
  EXPECT_EQ(bpe.tokens[257], " c");    // 2 times, as ('c', 'd') and ("ab", "ab"), which have larger ids
  EXPECT_EQ(bpe.tokens[258], "abab");  // 2 times, as (" c", 'd')
}

TEST(BpeTrainer, StopsWhenNoPairRepeats) {
  BpeTrainer trainer({.vocab_size = 1000});
  trainer.add("xyxy");
  const TrainedBpe bpe = trainer.train();
  EXPECT_EQ(bpe.merges.size(), 1u);
  EXPECT_EQ(bpe.text_bytes, 4);
  EXPECT_EQ(bpe.text_tokens, 2);
}

TEST(BpeTrainer, DoesNotDependOnTheOrderOfTexts) {
  const std::vector<std::string> texts = {"the river the mountain", "a lantern on the river", "that garden again"};
  BpeTrainer forth({.vocab_size = 280}), back({.vocab_size = 280});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    forth.add(texts[i]);
    back.add(texts[texts.size() - 1 - i]);
  }
  EXPECT_EQ(forth.train().tokens, back.train().tokens);
}

TEST(BpeTrainer, LearnsNothingFromSpecialTokens) {
  BpeTrainer trainer({.vocab_size = 300});
  for (int i = 0; i < 10; ++i) trainer.add("<|endoftext|>");
  trainer.add("zz zz");
  EXPECT_EQ(trainer.train().text_bytes, 5);
}

TEST(BpeTrainer, RefusesImpossibleSizes) {
  EXPECT_THROW(BpeTrainer({.vocab_size = 256}), Error);
  EXPECT_THROW(BpeTrainer({.vocab_size = 1 << 21}), Error);
  EXPECT_THROW(BpeTrainer({.vocab_size = 300}).train(), Error);
}

TEST(BpeTrainer, WritesATokenizerThatEncodesAsItWasTrained) {
  const std::string folder = (fs::path(testing::TempDir()) / ("bpe_train_" + std::to_string(::getpid()))).string();
  const std::string text =
      "The mountain's river, again and again: the garden 1234\n\n  nothing sm\xC3\xB6rg\xC3\xA5s \x01 \"\\";
  for (const WordPattern pattern : {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2}) {
    BpeTrainer trainer({.vocab_size = 290, .pattern = pattern, .min_count = 1});
    trainer.add(text);
    const TrainedBpe bpe = trainer.train();
    write_tokenizer(folder, bpe, trainer.options());
    const Tokenizer tokenizer = Tokenizer::load(folder);
    EXPECT_EQ(tokenizer.vocab_size(), 290);
    EXPECT_EQ(tokenizer.end_of_text(), 289);
    const std::vector<std::int32_t> ids = tokenizer.encode(text, true);
    EXPECT_EQ(static_cast<std::int64_t>(ids.size()), bpe.text_tokens);
    EXPECT_EQ(tokenizer.decode(ids, false), text);
    EXPECT_EQ(tokenizer.encode("<|endoftext|>", false), std::vector<std::int32_t>{289});
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace intarsia::formats
