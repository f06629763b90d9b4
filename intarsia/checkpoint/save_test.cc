#include "intarsia/checkpoint/save.h"

#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <thread>

#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/root_folder.h"
#include "intarsia/checkpoint/testing_run.h"

namespace intarsia::checkpoint {
namespace {

namespace fs = std::filesystem;
using comm::Communicator;
using comm::run_ranks;
using Names = std::vector<std::string>;

using Save = CheckpointTest;

TEST(AllOrNone, OneRanksFailureIsEveryRanksError) {
  run_ranks(3, [](Communicator& axis) {
    const auto local = [&] { INTARSIA_CHECK(kFormat, axis.rank() != 2, "no such thing"); };
    EXPECT_EQ(error_of(ErrorKind::kFormat, [&] { all_or_none(axis, "saving", local); }),
              "saving: rank 2: no such thing");
    all_or_none(axis, "saving", [] {});  // and the ranks are still in step
    EXPECT_EQ(broadcast_text(axis, axis.rank() == 0 ? "from rank 0" : "another"), "from rank 0");
  });
}

TEST_F(Save, LeavesACheckpointAndItsNameInLatest) {
  save(10);
  EXPECT_EQ(names(), (Names{"latest", "step-10"}));
  EXPECT_EQ(io::read_text_file(root() + "/latest", 100), "step-10\n");
  Names files;
  for (const auto& entry : fs::directory_iterator(step(10))) files.push_back(entry.path().filename());
  std::ranges::sort(files);
  EXPECT_EQ(files, (Names{"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"}));
}

// behaviours, kind 7: 2 ranks, target not writable for rank 1: both fail and name rank 1 and the path.
TEST_F(Save, ARankThatCannotWriteFailsAllAndKeepsTheOlderCheckpoint) {
  save(10);
  std::ofstream(folder_ + "/file") << "no folder";
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(odd_model(), 2, 3), axis);
    SaveRequest bad = request(20);
    if (axis.rank() == 1) bad.root = folder_ + "/file/checkpoints";
    const std::string message = error_of(ErrorKind::kIo, [&] { save_checkpoint(bad, run.engine, *run.optimizer); });
    EXPECT_NE(message.find("rank 1: cannot "), std::string::npos);
    EXPECT_NE(message.find("file/checkpoints/step-20.wip-"), std::string::npos) << message;
    EXPECT_NE(message.find("Not a directory"), std::string::npos) << message;
    axis.barrier({"", "looked"});
    EXPECT_EQ(names(), (Names{"latest", "step-10"}));
    save_checkpoint(request(20), run.engine, *run.optimizer);  // training goes on, and so does saving
  });
  EXPECT_EQ(*find_checkpoint(root()).path, step(20));
}

// As on a full disk: space is reserved before anything is written.
TEST_F(Save, NoRoomFailsAndKeepsTheOlderCheckpoint) {
  save(10);
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(odd_model(), 2, 3), axis);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    ::signal(SIGXFSZ, SIG_IGN);
    axis.barrier({"", "limit known"});
    rlimit small = before;
    small.rlim_cur = 2048;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    try {
      save_checkpoint(request(20), run.engine, *run.optimizer);
    } catch (const Error& error) {
      message = error.what();
    }
    axis.barrier({"", "tried"});
    ::setrlimit(RLIMIT_FSIZE, &before);
    if (axis.rank() == 0) ::signal(SIGXFSZ, SIG_DFL);
    EXPECT_NE(message.find("the checkpoint of step 20 was not saved: rank 0: cannot reserve space"), std::string::npos)
        << message;
    EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  });
  EXPECT_EQ(names(), (Names{"latest", "step-10"}));
  EXPECT_EQ(*find_checkpoint(root()).path, step(10));
}

TEST_F(Save, AStepThatExistsIsReplaced) {
  save(10, 3);
  save(10, 2);
  EXPECT_EQ(names(), (Names{"latest", "step-10"}));
  EXPECT_EQ(find_checkpoint(root()).manifest->ranks, 2);
}

// A crash between the two renames leaves the old checkpoint under another name.
TEST_F(Save, ACrashWhileReplacingLosesNothing) {
  save(10);
  fs::rename(step(10), step(10) + ".old-1234");
  EXPECT_EQ(*find_checkpoint(root()).path, step(10) + ".old-1234");
  save(9);
  EXPECT_EQ(*find_checkpoint(root()).path, step(10)) << "it has its name again";
  save(10);
  save(11);
  EXPECT_EQ(names(), (Names{"latest", "step-10", "step-11", "step-9"}));
}

TEST_F(Save, WhatACrashLeftIsClearedAwayButNotWhatIsBeingWritten) {
  save(10);
  fs::create_directory(step(20) + ".wip-dead");
  std::ofstream(step(20) + ".wip-dead/rank-00000.safetensors.partial") << "half";
  fs::create_directory(step(20) + ".wip-alive");
  std::ofstream(root() + "/latest.tmp-1-1") << "step";
  const FolderLock other_job(step(20) + ".wip-alive", 0);
  save(30);
  EXPECT_EQ(names(), (Names{"latest", "step-10", "step-20.wip-alive", "step-30"}));
}

TEST_F(Save, LeftoversCanBeClearedAwayWithoutASave) {
  save(10);
  save(20);
  fs::rename(step(10), step(10) + ".old-1234");
  fs::rename(step(20), step(20) + ".gone-1234");
  fs::create_directory(step(30) + ".wip-dead");
  std::ofstream(root() + "/latest.tmp-1-1") << "step";
  clear_away(root());
  EXPECT_EQ(names(), (Names{"latest", "step-10"}));
  clear_away(folder_ + "/nothing here");
}

TEST_F(Save, KeepsTheNewestCompleteOnes) {
  for (const std::int64_t number : {1, 2, 3}) save(number);
  fs::remove(step(3) + "/" + body_name(1));
  save(4, 2, 2);
  EXPECT_EQ(names(), (Names{"latest", "step-2", "step-3", "step-4"})) << "the broken one does not count";
  save(5, 2, 1);
  EXPECT_EQ(names(), (Names{"latest", "step-5"}));
  save(3, 2, 1);
  EXPECT_EQ(names(), (Names{"latest", "step-3", "step-5"})) << "the one just saved stays, and so do newer ones";
}

TEST_F(Save, MilestonesStay) {
  for (const std::int64_t number : {1, 2, 3, 4, 5, 6, 7}) save(number, 2, 2, 3, 3);
  EXPECT_EQ(names(), (Names{"latest", "step-3", "step-6", "step-7"}));
}

// Whoever stops between the rename and the removal leaves a name that counts for nothing and goes with the next save.
TEST_F(Save, AHalfRemovedCheckpointIsNoneAndIsClearedAway) {
  save(1);
  save(2);
  fs::rename(step(2), step(2) + ".gone-12");
  const Found found = find_checkpoint(root());
  EXPECT_EQ(found.path, step(1));
  EXPECT_TRUE(found.passed_over.empty());
  save(3);
  EXPECT_EQ(names(), (Names{"latest", "step-1", "step-3"}));
}

// Ranks that disagree on the step or the configuration would mix two states into one checkpoint.
TEST_F(Save, RanksThatWouldSaveDifferentStatesAreRefused) {
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(odd_model(), 2, 3), axis);
    for (const bool other_step : {true, false}) {
      SaveRequest mine = request(axis.rank() == 1 && other_step ? 21 : 20);
      if (axis.rank() == 1 && !other_step) mine.config = "{}";
      const std::string message =
          error_of(ErrorKind::kInternal, [&] { save_checkpoint(mine, run.engine, *run.optimizer); });
      EXPECT_NE(message.find("rank 1: "), std::string::npos) << message;
    }
    axis.barrier({"", "looked"});
    EXPECT_FALSE(fs::exists(root()) && !fs::is_empty(root()));
  });
}

// behaviours, kind 7: 2 launch groups on one shared directory, 20 saves: all load.
TEST_F(Save, TwoJobsShareARoot) {
  fs::create_directory(root());
  const auto job = [&] {
    run_ranks(2, [&](Communicator& axis) {
      TestRun run(run_plan(odd_model(), 2, 3), axis);
      run.fill_with_known_values();
      for (int number = 1; number <= 20; ++number) save_checkpoint(request(number), run.engine, *run.optimizer);
    });
  };
  std::thread other(job);
  job();
  other.join();
  EXPECT_EQ(names().size(), 21U);
  run_ranks(2, [&](Communicator& axis) {
    for (int number = 1; number <= 20; ++number) {
      TestRun run(run_plan(odd_model(), 2, 3), axis, 2);
      load_checkpoint(step(number), run.engine, *run.optimizer);
      run.expect_known_values(DType::kF32);
    }
  });
}

}  // namespace
}  // namespace intarsia::checkpoint
