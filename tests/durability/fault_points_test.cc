// Every file operation of a save, on either rank, disturbed in every way: what can be loaded afterwards is the
// checkpoint of before or the new one, bit for bit, and one more save leaves nothing behind.
#include <map>

#include "durability_case.h"
#include "file_shim.h"

namespace intarsia::checkpoint {
namespace {

constexpr std::pair<shim_fault, const char*> kFaults[] = {{SHIM_KILL_BEFORE, "kill before"},
                                                          {SHIM_KILL_AFTER, "kill after"},
                                                          {SHIM_EIO, "EIO"},
                                                          {SHIM_ENOSPC, "ENOSPC"},
                                                          {SHIM_SHORT, "short write"},
                                                          {SHIM_SHORT_ENOSPC, "short write, then ENOSPC"},
                                                          {SHIM_SHORT_KILL, "short write, then kill"}};

bool kills(shim_fault fault) {
  return fault == SHIM_KILL_BEFORE || fault == SHIM_KILL_AFTER || fault == SHIM_SHORT_KILL;
}
bool needs_write(shim_fault fault) { return fault >= SHIM_SHORT; }

class FaultPoints : public DurabilityTest {
 protected:
  // The kinds of the operations of each rank in an undisturbed save.
  std::vector<std::string> count_operations(const Scenario& scenario) {
    start_over();
    const auto file = [&](int rank) { return folder_ + "/operations-" + std::to_string(rank); };
    disturbed_save(
        scenario, [&](int) { shim_arm(root().c_str(), SHIM_NONE, -1, -1); },
        [&](int rank) {
          std::string kinds;
          for (long n = 0; shim_kind(n) != 0; ++n) kinds += shim_kind(n);
          shim_disarm();
          io::write_file_atomic(file(rank), kinds);
        });
    return {io::read_text_file(file(0), 10'000), io::read_text_file(file(1), 10'000)};
  }

  void try_point(const Scenario& scenario, int victim, long nth, shim_fault fault) {
    start_over();
    const std::vector<int> codes = disturbed_save(scenario, [&](int rank) {
      if (std::freopen("/dev/null", "w", stderr) == nullptr) std::abort();  // warnings of what is meant to fail
      if (rank == victim) shim_arm(root().c_str(), fault, nth, -1);
    });
    const int other = 1 - victim;
    if (kills(fault)) {
      EXPECT_EQ(codes[victim], kEndKilled);
      EXPECT_NE(codes[other], kEndAssertion);
    } else {
      EXPECT_EQ(codes[0], codes[1]) << "the ranks do not agree on whether it was saved";
      EXPECT_TRUE(codes[0] == kEndSaved || codes[0] == kEndRefused) << codes[0];
    }
    ++(codes[other] == kEndSaved ? told_saved_ : told_refused_);
    const std::vector<int> after = run_processes(1, [&](comm::Communicator& axis) {
      TestRun run(run_plan(odd_model(), 1, 0), axis, 5);
      const std::int64_t mark = loaded_mark(run);
      EXPECT_TRUE(mark == 30 || (mark == 20 && codes[other] != kEndSaved)) << "loaded " << mark;
      fill_marked(run, 40);
      save_marked(marked_request(root(), 40, 40, 2), run, false);
      EXPECT_EQ(loaded_mark(run), 40);
      return kEndSaved;
    });
    EXPECT_EQ(after[0], kEndSaved);
    EXPECT_EQ(debris(), std::vector<std::string>{});
    ++points_;
  }

  // Every `stride`-th point, from the first on.
  void try_all(const Scenario& scenario, long stride) {
    const std::vector<std::string> operations = count_operations(scenario);
    ASSERT_GT(operations[0].size(), 40U);
    ASSERT_GT(operations[1].size(), 5U);
    long point = 0;
    for (int victim = 0; victim < 2; ++victim) {
      for (const auto& [fault, name] : kFaults) {
        for (std::size_t nth = 0; nth < operations[victim].size(); ++nth) {
          if (needs_write(fault) && operations[victim][nth] != 'w') continue;
          if (point++ % stride != 0) continue;
          SCOPED_TRACE(concat(scenario.name, ", rank ", victim, ", operation ", nth, ", ", name));
          try_point(scenario, victim, static_cast<long>(nth), fault);
          if (HasFailure()) ++failed_;
          if (failed_ > 3) return;  // enough to look at
        }
      }
    }
  }
  void report() const {
    std::cout << points_ << " points tried, " << points_ - failed_
              << " survived; the other rank was told that it was saved " << told_saved_ << " times and that it was not "
              << told_refused_ << " times\n";
  }

  long points_ = 0, failed_ = 0, told_saved_ = 0, told_refused_ = 0;
};

TEST_F(FaultPoints, AFewOfEachKindAreSurvived) {
  for (const Scenario& scenario : kScenarios) try_all(scenario, 41);
  report();
  EXPECT_GT(points_, 20);
}

TEST_F(FaultPoints, SlowAllAreSurvived) {
  for (const Scenario& scenario : kScenarios) try_all(scenario, 1);
  report();
  EXPECT_GE(points_, 500);
  EXPECT_GT(told_saved_, 0);
  EXPECT_GT(told_refused_, 0);
}

}  // namespace
}  // namespace intarsia::checkpoint
