// The states that a power cut may leave during a save, built from a log of its operations: each loads the checkpoint of
// before or the new one, and the new one as soon as the save has said that it is there.
#include <fcntl.h>
#include <sys/stat.h>

#include <functional>
#include <unordered_set>

#include "crash_replay.h"
#include "durability_case.h"
#include "file_shim.h"

namespace intarsia::checkpoint {
namespace {

using testing::CrashReplay;
using testing::Tree;

class CrashStates : public DurabilityTest {
 protected:
  CrashReplay logged_save(const Scenario& scenario) {
    start_over();
    Tree before = testing::read_tree(root());
    std::map<std::uint64_t, std::string> objects{{inode(root()), ""}};
    for (const auto& [path, bytes] : before)
      if (path.ends_with('/')) objects[inode(root() + "/" + path)] = path;
    const std::string log = folder_ + "/log";
    fs::remove(log);
    disturbed_save(scenario, [&](int) {
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      shim_arm(root().c_str(), SHIM_NONE, -1, fd);
    });
    return {std::move(before), std::move(objects), root(), testing::read_operations(log)};
  }
  static std::uint64_t inode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_ino;
  }

  void check(const Tree& tree, bool must_be_new) {
    std::string key;
    for (const auto& [path, bytes] : tree) key += concat(path, "\n", bytes.size(), "\n", bytes);
    if (!seen_.insert(std::hash<std::string>()(key)).second) return;
    testing::write_tree(tree, root());
    std::int64_t mark = 0;
    comm::run_ranks(1, [&](comm::Communicator& axis) {
      TestRun run(run_plan(odd_model(), 1, 0), axis, 5);
      try {
        mark = loaded_mark(run);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    });
    if (mark == 30) {
      ++new_;
    } else if (mark == 20 && !must_be_new) {
      ++old_;
    } else {
      ++lost_;
      std::string listed;
      for (const auto& [path, bytes] : tree) listed += concat("\n  ", path, " ", bytes.size());
      ADD_FAILURE() << "loaded " << mark << (must_be_new ? ", although the save was complete" : "") << listed;
    }
  }

  // `variants` random states after each operation, beside those where all is kept or all is dropped.
  void try_states(const Scenario& scenario, int variants, std::size_t stride) {
    const CrashReplay replay = logged_save(scenario);
    ASSERT_GT(replay.size(), 50U);
    // The commit is durable at the first fsync of the root after the rename.
    std::size_t committed = 0, renamed = 0;
    const std::string target = step_name_of(scenario);
    for (std::size_t at = 0; at < replay.size(); ++at) {
      const auto& operation = replay.operation(at);
      if (operation.kind == SHIM_RENAME && operation.target == target) renamed = at;
      if (renamed != 0 && committed == 0 && replay.syncs_root(at)) committed = at;
    }
    ASSERT_GT(committed, renamed);
    std::mt19937_64 random(7);
    using Names = CrashReplay::Names;
    using Data = CrashReplay::Data;
    for (std::size_t count = 0; count <= replay.size() && lost_ < 4; count += stride) {
      const bool must_be_new = count > committed;
      for (const Names names : {Names::kKept, Names::kPrefix, Names::kAny})
        for (const Data data : {Data::kKept, Data::kDropped})
          check(replay.state(count, names, data, random), must_be_new);
      for (int variant = 0; variant < variants; ++variant)
        check(replay.state(count, variant % 2 == 0 ? Names::kPrefix : Names::kAny, Data::kAny, random), must_be_new);
    }
  }
  static std::string step_name_of(const Scenario& scenario) { return concat("step-", scenario.step); }
  void report() const {
    std::cout << seen_.size() << " different states: " << new_ << " load the new checkpoint, " << old_
              << " the one of before, " << lost_ << " neither\n";
  }

  std::unordered_set<std::size_t> seen_;
  int new_ = 0, old_ = 0, lost_ = 0;
};

TEST_F(CrashStates, AFewLoadTheOldOrTheNewCheckpoint) {
  for (const Scenario& scenario : kScenarios) try_states(scenario, 2, 3);
  report();
  EXPECT_GT(new_, 20);
  EXPECT_GT(old_, 20);
}

TEST_F(CrashStates, SlowAllLoadTheOldOrTheNewCheckpoint) {
  for (const Scenario& scenario : kScenarios) try_states(scenario, 64, 1);
  report();
  EXPECT_GE(seen_.size(), 2000U);
}

}  // namespace
}  // namespace intarsia::checkpoint
