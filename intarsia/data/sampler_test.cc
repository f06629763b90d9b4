#include "intarsia/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/base/error.h"

namespace intarsia::data {
namespace {

using Indices = std::vector<std::int64_t>;

std::vector<Window> all_windows(const Sampler& sampler) {
  std::vector<Window> windows;
  std::int64_t position = 0;
  while (const auto window = sampler.next_window(position)) {
    windows.push_back(*window);
    position = window->end;
  }
  return windows;
}

// The samples of a window, rank by rank, micro-step by micro-step.
Indices all_samples(const Sampler& sampler, const Window& window) {
  Indices samples;
  for (int rank = 0; rank < sampler.options().ranks; ++rank) {
    for (std::int64_t step = 0; step < sampler.micro_steps(window); ++step) {
      const Indices part = sampler.samples_of(window, rank, step);
      samples.insert(samples.end(), part.begin(), part.end());
    }
  }
  return samples;
}

std::string message_of(const SamplerOptions& options, ErrorKind kind) {
  try {
    const Sampler sampler(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Sampler, WithoutShuffleGlobalBatchKIsInOrderOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    const Sampler sampler({.num_samples = 24, .shuffle = false, .micro_batch = 12 / ranks, .ranks = ranks});
    std::int64_t position = 0;
    for (std::int64_t k = 0; k < 2; ++k) {
      const auto window = sampler.next_window(position);
      ASSERT_TRUE(window.has_value());
      Indices expected;
      for (std::int64_t i = k * 12; i < (k + 1) * 12; ++i) expected.push_back(i);
      EXPECT_EQ(all_samples(sampler, *window), expected) << ranks;
      position = window->end;
    }
  }
}

TEST(Sampler, ShuffledWindowsHoldTheSameSamplesOnAnyNumberOfRanks) {
  const Sampler one({.num_samples = 50, .seed = 3, .micro_batch = 4, .accumulation = 3, .ranks = 1});
  const Sampler four({.num_samples = 50, .seed = 3, .micro_batch = 1, .accumulation = 3, .ranks = 4});
  for (std::int64_t position = 0; position < 120; position += 12) {
    EXPECT_EQ(all_samples(one, *one.next_window(position)), all_samples(four, *four.next_window(position)));
  }
}

TEST(Sampler, RanksTakeContiguousSharesInMicroBatches) {
  const Sampler sampler({.num_samples = 8, .shuffle = false, .micro_batch = 2, .accumulation = 2, .ranks = 2});
  const Window window = *sampler.next_window(0);
  EXPECT_EQ(sampler.micro_steps(window), 2);
  EXPECT_EQ(sampler.samples_of(window, 0, 0), (Indices{0, 1}));
  EXPECT_EQ(sampler.samples_of(window, 0, 1), (Indices{2, 3}));
  EXPECT_EQ(sampler.samples_of(window, 1, 0), (Indices{4, 5}));
  EXPECT_EQ(sampler.samples_of(window, 1, 1), (Indices{6, 7}));
}

// behaviours 2: 6 micro-batches an epoch, 2 epochs, 4 accumulation steps.
TEST(Sampler, PlannedUpdatesEqualDoneOnesForEachPolicy) {
  SamplerOptions options{.num_samples = 6, .accumulation = 4, .epochs = 2};
  for (const auto& [policy, updates] :
       {std::pair{LastWindow::kCarry, 3}, std::pair{LastWindow::kFlush, 4}, std::pair{LastWindow::kDrop, 2}}) {
    options.last_window = policy;
    EXPECT_EQ(planned_updates(options), updates);
    EXPECT_EQ(all_windows(Sampler(options)).size(), static_cast<std::size_t>(updates));
  }
}

TEST(Sampler, PlannedUpdatesEqualDoneOnesForManySizes) {
  for (const auto policy : {LastWindow::kCarry, LastWindow::kFlush, LastWindow::kDrop}) {
    for (std::int64_t n = 1; n <= 14; ++n) {
      for (const double epochs : {0.3, 1.0, 1.5, 3.0}) {
        for (const int ranks : {1, 2, 3}) {
          const SamplerOptions options{
              .num_samples = n, .accumulation = 2, .ranks = ranks, .last_window = policy, .epochs = epochs};
          if (policy == LastWindow::kDrop &&
              std::min(n, static_cast<std::int64_t>(epochs * static_cast<double>(n) + 0.999)) < 2 * ranks)
            continue;
          const auto windows = all_windows(Sampler(options));
          EXPECT_EQ(planned_updates(options), static_cast<std::int64_t>(windows.size()))
              << n << " " << epochs << " " << ranks;
          for (const Window& window : windows) EXPECT_GT(window.num_samples(), 0);
        }
      }
    }
  }
}

TEST(Sampler, CarryAndFlushUseEverySampleOnceAnEpoch) {
  for (const auto policy : {LastWindow::kCarry, LastWindow::kFlush}) {
    const Sampler sampler(
        {.num_samples = 11, .micro_batch = 2, .accumulation = 2, .ranks = 2, .last_window = policy, .epochs = 3});
    std::vector<int> uses(11);
    for (const Window& window : all_windows(sampler)) {
      for (const std::int64_t index : all_samples(sampler, window)) ++uses[static_cast<std::size_t>(index)];
    }
    EXPECT_EQ(uses, std::vector<int>(11, 3));
  }
}

TEST(Sampler, DropStartsTheNextEpochAtItsFirstSample) {
  const Sampler sampler(
      {.num_samples = 6, .shuffle = false, .accumulation = 4, .last_window = LastWindow::kDrop, .epochs = 2});
  const auto windows = all_windows(sampler);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(all_samples(sampler, windows[1]), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(sampler.sample_at(windows[1].begin).epoch, 1);
}

// behaviours 2: 5 micro-batches, 4 accumulation steps, flush: the second update has one micro-step.
TEST(Sampler, FlushGivesAShortWindowOnlyTheMicroStepsItNeeds) {
  const Sampler sampler({.num_samples = 5, .accumulation = 4, .last_window = LastWindow::kFlush, .epochs = 1});
  const auto windows = all_windows(sampler);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(sampler.micro_steps(windows[0]), 4);
  EXPECT_EQ(sampler.micro_steps(windows[1]), 1);
}

// behaviours 6: 5 samples left, 4 ranks, micro-batch 2: 2, 1, 1, 1.
TEST(Sampler, SpreadsAShortWindowOverTheRanks) {
  const Sampler sampler({.num_samples = 5, .micro_batch = 2, .ranks = 4, .epochs = 1});
  const Window window = *sampler.next_window(0);
  std::vector<std::size_t> sizes;
  for (int rank = 0; rank < 4; ++rank) sizes.push_back(sampler.samples_of(window, rank, 0).size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 1, 1, 1}));
  EXPECT_EQ(sampler.micro_steps(window), 1);
}

TEST(Sampler, ShortWindowLeavesSomeRanksWithoutSamplesButWithTheStep) {
  const Sampler sampler({.num_samples = 2, .micro_batch = 2, .ranks = 4, .epochs = 1});
  const Window window = *sampler.next_window(0);
  EXPECT_EQ(sampler.micro_steps(window), 1);
  EXPECT_EQ(sampler.samples_of(window, 1, 0).size(), 1U);
  EXPECT_TRUE(sampler.samples_of(window, 3, 0).empty());
}

// behaviours 6: 4 samples, 4 ranks, micro-batch 2, drop_last: no rank has a full batch.
TEST(Sampler, DropWithoutAFullWindowIsAnErrorBeforeTraining) {
  const std::string message = message_of(
      {.num_samples = 4, .micro_batch = 2, .ranks = 4, .last_window = LastWindow::kDrop}, ErrorKind::kConfig);
  EXPECT_NE(message.find("4 samples"), std::string::npos) << message;
  EXPECT_NE(message.find("needs 8"), std::string::npos) << message;
}

TEST(Sampler, RefusesEmptyDataAndNumbersBelowOne) {
  message_of({.num_samples = 0}, ErrorKind::kData);
  message_of({.num_samples = 4, .micro_batch = 0}, ErrorKind::kConfig);
  message_of({.num_samples = 4, .ranks = 0}, ErrorKind::kConfig);
  message_of({.num_samples = 4, .epochs = -1}, ErrorKind::kConfig);
}

// behaviours 8: resume inside epoch 1, go on into epoch 2: the permutation of the uninterrupted run.
TEST(Sampler, ResumesAtAnyPositionWithTheSameOrder) {
  const SamplerOptions options{.num_samples = 7, .seed = 5, .micro_batch = 3, .ranks = 1};
  const Sampler whole(options);
  std::vector<Indices> uninterrupted;
  std::vector<std::int64_t> ends;
  std::int64_t position = 0;
  for (int update = 0; update < 9; ++update) {
    const Window window = *whole.next_window(position);
    uninterrupted.push_back(all_samples(whole, window));
    position = window.end;
    ends.push_back(position);
  }
  const Sampler resumed(options);
  position = ends[2];
  for (std::size_t update = 3; update < 9; ++update) {
    const Window window = *resumed.next_window(position);
    EXPECT_EQ(all_samples(resumed, window), uninterrupted[update]);
    position = window.end;
  }
}

TEST(Sampler, EpochsDifferInTheirOrder) {
  const Sampler sampler({.num_samples = 40});
  Indices first, second;
  for (std::int64_t i = 0; i < 40; ++i) {
    first.push_back(sampler.sample_at(i).index);
    second.push_back(sampler.sample_at(40 + i).index);
  }
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

TEST(Sampler, WithoutEpochsNeverEnds) {
  const Sampler sampler({.num_samples = 3, .micro_batch = 8});
  const auto window = sampler.next_window(8'000'000'000);
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->num_samples(), 8);
}

// behaviours 6: validation sets of 4 and 3 batches on 2 ranks.
TEST(EvalShares, AllRanksMakeTheSameStepsAndEachSampleCountsOnce) {
  const EvalShares shares = eval_shares(7 * 2, 2, 2);
  EXPECT_EQ(shares.steps(), 4);
  Indices seen;
  std::vector<int> batches(2);
  for (int rank = 0; rank < 2; ++rank) {
    for (std::int64_t step = 0; step < shares.steps(); ++step) {
      const Indices samples = shares.samples_of(rank, step);
      if (!samples.empty()) ++batches[static_cast<std::size_t>(rank)];
      seen.insert(seen.end(), samples.begin(), samples.end());
    }
  }
  EXPECT_EQ(batches, (std::vector<int>{4, 3}));
  std::sort(seen.begin(), seen.end());
  Indices expected;
  for (std::int64_t i = 0; i < 14; ++i) expected.push_back(i);
  EXPECT_EQ(seen, expected);
}

TEST(EvalShares, TakesSizesThatDoNotDivide) {
  const EvalShares shares = eval_shares(5, 4, 2);
  EXPECT_EQ(shares.steps(), 1);
  EXPECT_EQ(shares.samples_of(2, 0), (Indices{4}));
  EXPECT_TRUE(shares.samples_of(3, 0).empty());
  EXPECT_EQ(eval_shares(0, 2, 2).steps(), 0);
}

}  // namespace
}  // namespace intarsia::data
