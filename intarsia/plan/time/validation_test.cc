// Rows of tests/fixtures/plan/validation_rows.csv that are times or throughputs; a test's comment names the row. What
// each device was calibrated with stands in cluster_presets.cc; docs/plan.md lists predictions beside calibration.
#include <gtest/gtest.h>

#include <cmath>

#include "intarsia/plan/search/layout.h"
#include "intarsia/plan/time/cost.h"

namespace intarsia::plan {
namespace {

void expect_within(double value, double published, double percent) {
  EXPECT_NEAR(value / published, 1, percent / 100) << value << " against " << published;
}

TransformerShape gpt(double layers, double hidden, double heads, double sequence, double vocab) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn = 4 * hidden,
          .vocab = vocab,
          .sequence = sequence,
          .gated = false,
          .tied = true,
          .biases = true};
}

TransformerShape llama(double layers, double hidden, double heads, double ffn) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn = ffn,
          .vocab = 128256,
          .sequence = 8192};
}

double seconds(const char* cluster, const Workload& work, const Layout& layout) {
  return layout_time(find_cluster(cluster), work, layout).total();
}

double tokens_per_second(const char* cluster, const Workload& work, const Layout& layout) {
  return throughput(find_cluster(cluster), work, layout, seconds(cluster, work, layout)).tokens_per_second;
}

TEST(Validation, ShapesHaveTheirPublishedNumbersOfParameters) {
  EXPECT_DOUBLE_EQ(llama(32, 4096, 32, 14336).parameters(), 8030261248);
  EXPECT_DOUBLE_EQ(llama(80, 8192, 64, 28672).parameters(), 70553706496);
  EXPECT_DOUBLE_EQ(llama(126, 16384, 128, 53248).parameters(), 405853388800);
  expect_within(gpt(12, 768, 12, 1024, 50257).parameters(), 124439808, 0.01);
}

TEST(Validation, Korthikanti22B) {  // korthikanti-22b-time: calibration
  const Workload work{.shape = gpt(48, 6144, 64, 2048, 51200), .implementation = kMegatron};
  Layout layout{.tensor = 8, .micro_batch = 4, .recomputed = Recomputed::kFull};
  expect_within(seconds("a100-80", work, layout), 1.42, 10);
  layout.sequence_parallel = true;
  layout.recomputed = Recomputed::kScores;
  expect_within(seconds("a100-80", work, layout), 1.10, 10);
}

TEST(Validation, Korthikanti530B) {  // korthikanti-530b-time: calibration
  const Workload work{.shape = gpt(105, 20480, 128, 2048, 51200), .implementation = kMegatron};
  Layout layout{.tensor = 8,
                .pipeline = 35,
                .chunks = 3,
                .accumulation = 280,
                .recomputed = Recomputed::kFull,
                .schedule = PipelineSchedule::kInterleaved};
  expect_within(seconds("a100-80", work, layout), 49.05, 10);
  layout.sequence_parallel = true;
  layout.recomputed = Recomputed::kScores;
  expect_within(seconds("a100-80", work, layout), 37.83, 10);
}

TEST(Validation, Megatron39B) {  // megatron-39b-throughput: prediction
  const Workload work{.shape = gpt(48, 8192, 64, 2048, 51200), .implementation = kMegatron};
  const Layout layout{.replicate = 32,
                      .tensor = 8,
                      .pipeline = 2,
                      .micro_batch = 2,
                      .accumulation = 24,
                      .recomputed = Recomputed::kFull};
  expect_within(seconds("a100-80", work, layout), 14.5, 10);
}

TEST(Validation, Megatron175BTakes34Days) {  // megatron-175b-days: 8 T N / (n X)
  expect_within(8 * 300e9 * 175e9 / (1024 * 140e12) / 86400, 34, 1);
}

TEST(Validation, Mpt7B) {  // mpt-7b-2k-a100: prediction
  const Workload work{.shape = gpt(32, 4096, 32, 2048, 50432), .grad_bytes = 2, .implementation = kEager};
  const Layout layout{.shard = 8, .stage = 3, .micro_batch = 6};
  expect_within(tokens_per_second("a100-80", work, layout), 4641, 10);
  // The printed utilisation follows from the printed throughput, by the full-square convention on the exact N.
  const double flops = 6 * 6658859008.0 + 12 * 32 * 4096 * 2048.0;
  EXPECT_NEAR(100 * 4641 * flops / 312e12, 64.23, 0.05);
}

TEST(Validation, Mpt70B) {  // mpt-70b-scaling-a100: calibration
  const Workload work{.shape = gpt(80, 8192, 64, 2048, 50432), .grad_bytes = 2, .implementation = kEager};
  Layout layout{.shard = 64, .stage = 3, .micro_batch = 8, .recomputed = Recomputed::kFull};
  expect_within(tokens_per_second("a100-80", work, layout), 410, 10);
  layout.shard = 32;
  layout.micro_batch = 2;
  expect_within(tokens_per_second("a100-80", work, layout), 373, 10);
}

TEST(Validation, LlmC124M) {  // llmc-124m-8xa100: prediction
  const Workload work{.shape = gpt(12, 768, 12, 1024, 50304), .implementation = kHandWritten};
  const Layout layout{.shard = 8, .stage = 1, .micro_batch = 64};
  expect_within(seconds("a100-80", work, layout), 0.300, 10);
}

TEST(Validation, Titan8B) {  // titan-8b-8gpu: calibration
  Workload work{.shape = llama(32, 4096, 32, 14336), .implementation = kEagerFp32Norms};
  const Layout layout{.shard = 8, .stage = 3, .micro_batch = 2, .recomputed = Recomputed::kHalf};
  expect_within(tokens_per_second("h100-96-500w", work, layout), 5762, 10);
  work.implementation = kCompiled;
  expect_within(tokens_per_second("h100-96-500w", work, layout), 6667, 10);
}

TEST(Validation, Titan405B) {  // titan-405b-schedules: calibration of fp8 and of the memory of kept outputs
  const Workload work{.shape = llama(126, 16384, 128, 53248),
                      .matrix = MatrixType::kFp8,
                      .tensor_overlap = 0.5,
                      .keeps_outputs = true,
                      .implementation = kCompiled};
  Layout layout{.shard = 8,
                .tensor = 8,
                .pipeline = 8,
                .stage = 3,
                .accumulation = 32,
                .sequence_parallel = true,
                .recomputed = Recomputed::kFull};
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const ClusterSpec cluster = find_cluster("h100-96-500w");
  expect_within(tokens_per_second("h100-96-500w", work, layout), 100, 15);
  expect_within(layout_memory(cluster, work, layout).total() / kGiB, 82.5, 15);
  layout.schedule = PipelineSchedule::kInterleaved;
  layout.chunks = 2;
  expect_within(tokens_per_second("h100-96-500w", work, layout), 128, 15);
  expect_within(layout_memory(cluster, work, layout).total() / kGiB, 72.7, 15);
}

TEST(Validation, Bridge8BFp8) {  // bridge-8b-fp8: prediction
  const Workload work{.shape = llama(32, 4096, 32, 14336), .matrix = MatrixType::kFp8, .implementation = kCompiled};
  const Layout layout{.shard = 8, .stage = 3, .micro_batch = 1, .accumulation = 16};
  expect_within(tokens_per_second("h100", work, layout), 14451, 12);
  expect_within(14451 * flops_per_token(work.shape, FlopsConvention::kCausalHalf) / 1e12, 744, 0.5);
}

TEST(Validation, CpuAdamOfTenBillion) {  // cpu-adam-10b
  expect_within(30 * 10e9 / find_cluster("v100-dgx2").host_memory_bandwidth, 2.57, 3);
}

TEST(Cost, CollectivesFollowTheirAlphaBetaModels) {
  const Link link{.name = "", .bandwidth = 1e9, .efficiency = 1, .latency = 1e-6};
  const double bytes = 1e9;
  EXPECT_NEAR(collective_seconds(link, Collective::kAllReduce, 8, bytes), 14e-6 + 2 * 7 / 8.0, 1e-12);
  EXPECT_NEAR(collective_seconds(link, Collective::kAllGather, 8, bytes), 7e-6 + 7 / 8.0, 1e-12);
  EXPECT_NEAR(collective_seconds(link, Collective::kAllReduce, 8, bytes, Algorithm::kTree), 6e-6 + 2, 1e-12);
  EXPECT_NEAR(collective_seconds(link, Collective::kAllReduce, 8, bytes, Algorithm::kHalvingDoubling),
              6e-6 + 2 * 7 / 8.0, 1e-12);
  EXPECT_EQ(collective_seconds(link, Collective::kAllReduce, 1, bytes), 0);
}

TEST(Cost, ReducingInsideHostsFirstSparesTheSlowLink) {
  const ClusterSpec cluster = find_cluster("a100-80");
  const AxisShape axis{.ranks = 64, .per_host = 8};
  EXPECT_LT(hierarchical_seconds(cluster, axis, 1e9),
            collective_seconds(cluster.inter, Collective::kAllReduce, 64, 1e9));
  EXPECT_EQ(slowest_link(cluster, axis).name, cluster.inter.name);
  EXPECT_EQ(slowest_link(cluster, {.ranks = 8, .per_host = 8}).name, cluster.intra.name);
}

TEST(Cost, UtilisationDiffersByConvention) {
  const TransformerShape shape = llama(32, 4096, 32, 14336);
  EXPECT_NEAR(flops_per_token(shape, FlopsConvention::kCausalHalf) / 1e9, 51.47, 0.02);
  EXPECT_NEAR(flops_per_token(shape, FlopsConvention::kFullSquare) / 1e9, 61.07, 0.1);
}

}  // namespace
}  // namespace intarsia::plan
