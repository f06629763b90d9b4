#include "intarsia/plan/memory/limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace intarsia::plan {
namespace {

namespace fs = std::filesystem;

// A folder that looks like / to read_memory_limit.
class Limits : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 5 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  MemoryLimit read() const { return read_memory_limit(root_.string()); }
  fs::path root_;
};

TEST_F(Limits, AreTheMachinesWithoutGroups) {
  EXPECT_EQ(read().bytes, 1000 * 1024);
  EXPECT_EQ(read().from, "the machine");
}

TEST_F(Limits, FollowTheTightestGroupOfVersionTwo) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/memory.max", "4096\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  EXPECT_EQ(read().bytes, 4096);
  EXPECT_TRUE(read().from.ends_with("/outer")) << read().from;
}

TEST_F(Limits, FollowTheTightestGroupOfVersionOne) {
  write("proc/self/cgroup", "5:cpu:/\n4:memory:/a/b\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9000\n");
  write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "8192\n");
  EXPECT_EQ(read().bytes, 8192);
}

TEST_F(Limits, AreUnknownWhereNothingCanBeRead) {
  fs::remove_all(root_);
  EXPECT_EQ(read().bytes, 0);
  EXPECT_EQ(does_not_fit({.rank_peak = 1, .host = 1}, read(), {}), "");
}

TEST(HostNeed, CountsWhatHeapsKeepBesideTheTensorsOfEachRank) {
  constexpr std::int64_t kMiB = 1 << 20;
  Moment forward, loss;
  forward.bytes[static_cast<std::size_t>(Holding::kActivations)] = 400 * kMiB;
  loss.bytes[static_cast<std::size_t>(Holding::kLogits)] = 32 * kMiB;
  loss.bytes[static_cast<std::size_t>(Holding::kReduce)] = 48 * kMiB;
  StepReplay replay;
  replay.timeline = {forward, loss};
  replay.peak.total = 900 * kMiB;
  const HostNeed need = host_need(replay, 2);
  EXPECT_EQ(need.rank_peak, 900 * kMiB);
  EXPECT_EQ(need.host, 2 * (900 + 16 + 100 + 15) * kMiB + 64 * kMiB);
  replay.timeline[1].recomputed = true;
  EXPECT_EQ(host_need(replay, 2).host, 2 * (900 + 16 + 260 + 15) * kMiB + 64 * kMiB) << "holes among what stays";
}

TEST_F(Limits, SayWhatToDoWhenARunDoesNotFit) {
  RunPlan plan;
  plan.ranks = 2;
  plan.stage = 1;
  plan.micro_batch = 4;
  const std::string text =
      does_not_fit({.rank_peak = 1 << 30, .host = std::int64_t{3} << 30}, {1 << 30, "the machine"}, plan);
  for (const char* word : {"3.00 GiB", "1.00 GiB", "--recompute full", "--stage 2", "--batch-size", "--force"})
    EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
}

}  // namespace
}  // namespace intarsia::plan
