#include "intarsia/plan/search/search.h"

#include <gtest/gtest.h>

#include <chrono>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

TransformerShape llama_70b() {
  return {.layers = 80,
          .hidden = 8192,
          .heads = 64,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn = 28672,
          .vocab = 128256,
          .sequence = 8192};
}

TransformerShape small() {
  return {.layers = 12,
          .hidden = 768,
          .heads = 12,
          .kv_heads = 12,
          .head_dim = 64,
          .ffn = 2048,
          .vocab = 16384,
          .sequence = 1024};
}

TEST(Search, NeverRecommendsWhatDoesNotFit) {
  const ClusterSpec cluster = find_cluster("a100-80");
  for (const double margin : {0.0, 0.05, 0.3}) {
    const SearchSpace space{.devices = 64, .global_batch = 128, .margin = margin};
    const SearchResult result = search_layouts(cluster, {.shape = llama_70b()}, space);
    EXPECT_LT(result.fitting, result.tried);
    for (const Candidate& candidate : result.best)
      EXPECT_LE(candidate.memory.total(), (1 - margin) * cluster.device.memory_bytes);
  }
}

TEST(Search, OrdersByTimeAndSaysWhyOthersLose) {
  const SearchResult result =
      search_layouts(find_cluster("h100"), {.shape = llama_70b()}, {.devices = 64, .global_batch = 128});
  ASSERT_GT(result.best.size(), 1U);
  for (std::size_t i = 1; i < result.best.size(); ++i) {
    EXPECT_LE(result.best[i - 1].time.total(), result.best[i].time.total());
    EXPECT_FALSE(result.best[i].why.empty());
  }
}

TEST(Search, HoldsWhatIsFixed) {
  const SearchResult result = search_layouts(find_cluster("h100"), {.shape = llama_70b()},
                                             {.devices = 64, .global_batch = 128, .stage = 3, .tensor = 8});
  ASSERT_FALSE(result.best.empty());
  for (const Candidate& candidate : result.best) {
    EXPECT_EQ(candidate.layout.stage, 3);
    EXPECT_EQ(candidate.layout.tensor, 8);
    EXPECT_EQ(candidate.layout.devices(), 64);
    EXPECT_EQ(candidate.layout.data() * candidate.layout.micro_batch * candidate.layout.accumulation, 128);
  }
}

TEST(Search, NamesTheSmallestWhenNothingFits) {
  const SearchResult result = search_layouts(find_cluster("a100-40"), {.shape = llama_70b()},
                                             {.devices = 1, .global_batch = 1, .offload = Offload::kNone});
  EXPECT_TRUE(result.best.empty());
  ASSERT_TRUE(result.smallest.has_value());
  EXPECT_GT(result.smallest->memory.total(), 40e9);
}

TEST(Search, SmallModelsNeedNothing) {
  const SearchResult result =
      search_layouts(find_cluster("h100"), {.shape = small()}, {.devices = 8, .global_batch = 64});
  ASSERT_FALSE(result.best.empty());
  EXPECT_EQ(result.best[0].layout.pipeline, 1);
  EXPECT_EQ(result.best[0].layout.recomputed, Recomputed::kNone);
  EXPECT_EQ(result.best[0].layout.offload, Offload::kNone);
  EXPECT_EQ(not_runnable_here(result.best[0].layout), "");
}

TEST(Search, SaysWhatDoesNotRunHere) {
  EXPECT_EQ(not_runnable_here({.shard = 4, .stage = 3, .recomputed = Recomputed::kFull}), "");
  EXPECT_EQ(not_runnable_here({.tensor = 2, .pipeline = 2}), "not runnable here yet: tensor parallel, pipeline");
}

TEST(Search, NamesTheBestThatRunsHereToday) {
  const SearchResult result =
      search_layouts(find_cluster("h100"), {.shape = llama_70b()}, {.devices = 64, .global_batch = 128});
  ASSERT_TRUE(result.runnable.has_value());
  EXPECT_EQ(not_runnable_here(result.runnable->layout), "");
  EXPECT_GE(result.runnable->time.total(), result.best.front().time.total());
}

TEST(Search, ClimbsTheLadderUntilItFits) {
  const auto lines =
      rule_of_thumb(find_cluster("a100-80"), {.shape = llama_70b()}, {.devices = 16, .global_batch = 16});
  EXPECT_TRUE(lines.front().starts_with("stage 2: "));
  EXPECT_NE(lines.front().find("does not fit"), std::string::npos);
  EXPECT_TRUE(lines.back().ends_with("fits") || lines.back().ends_with(")")) << lines.back();
}

TEST(Search, TriesAHundredThousandLayoutsASecond) {
  const auto begin = std::chrono::steady_clock::now();
  const SearchResult result =
      search_layouts(find_cluster("h100"), {.shape = llama_70b()}, {.devices = 1024, .global_batch = 4096});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GT(result.tried, 10000);
  EXPECT_GT(static_cast<double>(result.tried) / seconds, 1e5) << result.tried << " in " << seconds << " s";
}

}  // namespace
}  // namespace intarsia::plan
