#include "intarsia/plan/sim/goodput.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/plan/search/layout.h"
#include "intarsia/plan/sim/pipeline_sim.h"

namespace intarsia::plan {
namespace {

TEST(Goodput, FollowsYoungAndDaly) {
  const Goodput out = goodput({.devices = 1000, .hours_between_failures = 50000, .checkpoint_seconds = 60});
  EXPECT_DOUBLE_EQ(out.seconds_between_failures, 180000);
  EXPECT_NEAR(out.young_seconds, std::sqrt(2 * 60 * 180000.0), 1e-9);
  EXPECT_NEAR(out.daly_seconds, out.young_seconds - 60, 0.01 * out.young_seconds);
  EXPECT_GT(out.share, 0.95);
  EXPECT_LT(out.share, 1);
}

TEST(Goodput, FallsWithDevicesAndWithTheCostOfACheckpoint) {
  const auto share = [](double devices, double cost) {
    return goodput({.devices = devices, .checkpoint_seconds = cost}).share;
  };
  EXPECT_GT(share(1000, 60), share(10000, 60));
  EXPECT_GT(share(10000, 10), share(10000, 60));
  EXPECT_THROW(share(1e8, 60), Error);
}

TEST(Goodput, HasNoBetterIntervalNearby) {
  // The share by the same formula at other intervals.
  const FailureModel model{.devices = 20000};
  const Goodput best = goodput(model);
  const double between = best.seconds_between_failures, cost = model.checkpoint_seconds;
  for (const double times : {0.5, 0.8, 1.25, 2.0}) {
    const double interval = times * best.daly_seconds;
    const double wall =
        between * std::exp(model.restart_seconds / between) * std::expm1((interval + cost) / between) / interval;
    EXPECT_LT(1 / wall, best.share + 1e-6) << times;
  }
}

// Ranks that differ in their data and tensor place only do the same: a pipeline's ranks stand for all.
void simulate(int replicate, int tensor, int pipeline, int micro_batches) {
  const Workload work{.shape = {.layers = 96,
                                .hidden = 12288,
                                .heads = 96,
                                .kv_heads = 96,
                                .head_dim = 128,
                                .ffn = 49152,
                                .vocab = 51200,
                                .sequence = 2048,
                                .gated = false,
                                .tied = true},
                      .implementation = kMegatron};
  const Layout layout{.replicate = replicate,
                      .tensor = tensor,
                      .pipeline = pipeline,
                      .accumulation = micro_batches,
                      .recomputed = Recomputed::kFull};
  const ClusterSpec cluster = find_cluster("a100-80");
  const LayerSeconds layer =
      layer_seconds(cluster, work.shape, {.tensor = static_cast<double>(tensor), .recomputed = Recomputed::kFull},
                    work.implementation);
  const double layers = work.shape.layers / pipeline, half = layers * (layer.backward + layer.recompute) / 2;
  const double head = head_seconds(cluster, work.shape, {.tensor = static_cast<double>(tensor)}, work.implementation);
  const PipelineRun run = run_pipeline(
      make_pipeline(PipelineSchedule::kOneFOneB, pipeline, micro_batches),
      {.forward = layers * layer.forward, .input_grad = half, .weight_grad = half, .last_extra = head / 3});
  const LayoutTime closed = layout_time(cluster, work, layout);
  // The closed form lets every rank be as slow as the last one.
  EXPECT_NEAR(run.seconds / (closed.compute + closed.bubble), 1, 0.05);
}

TEST(Scale, ThousandsOfDevicesAreSimulatedInSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  simulate(64, 8, 4, 64);     // 2,048 devices
  simulate(1042, 8, 12, 96);  // 100,032 devices
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5);
}

}  // namespace
}  // namespace intarsia::plan
