#include <fstream>

#include "intarsia/checkpoint/testing_run.h"
#include "intarsia/plan/memory/working_bytes.h"

namespace intarsia::checkpoint {
namespace {

namespace fs = std::filesystem;
using comm::Communicator;
using comm::run_ranks;
using Names = std::vector<std::string>;

using BackgroundSave = CheckpointTest;

void overwrite(TestRun& run, float value) {
  const at::NoGradGuard no_grad;
  for (const LocalPiece& piece : local_pieces(run.engine, *run.optimizer, Part::kHeld)) piece.values.fill_(value);
  run.optimizer->set_updates(99);
}

// behaviours, kind 7: an asynchronous save stores weights, moments and counters as they were at the call.
TEST_F(BackgroundSave, StoresTheStateOfTheCall) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(concat(short_name(dtype), ", stage ", stage));
      const plan::RunPlan plan = run_plan(odd_model(), 2, stage, dtype);
      run_ranks(2, [&](Communicator& axis) {
        TestRun run(plan, axis);
        run.fill_with_known_values();
        run.optimizer->set_updates(1);
        BackgroundSaver saver(run.engine, *run.optimizer);
        saver.start(request(10));
        EXPECT_EQ(saver.step(), 10);
        overwrite(run, 2);
        EXPECT_EQ(saver.wait().path, step(10));
        EXPECT_FALSE(saver.busy());
        TestRun second(plan, axis, 2);
        load_checkpoint(step(10), second.engine, *second.optimizer);
        second.expect_known_values(dtype);
        EXPECT_EQ(second.optimizer->updates(), 1);
      });
    }
  }
}

TEST_F(BackgroundSave, WritesTheSameFilesAsABlockingSave) {
  save(10, 3);
  run_ranks(3, [&](Communicator& axis) {
    TestRun run(run_plan(odd_model(), 3, 3), axis);
    run.fill_with_known_values();
    run.optimizer->set_updates(10);
    BackgroundSaver saver(run.engine, *run.optimizer);
    saver.start(request(11));
    EXPECT_EQ(saver.wait().path, step(11));
    saver.start(request(12));  // the copy's memory is used again
    saver.wait();
  });
  for (const int number : {11, 12})
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(io::read_text_file(step(10) + "/" + body_name(rank), 1 << 20),
                io::read_text_file(step(number) + "/" + body_name(rank), 1 << 20));
  EXPECT_EQ(names(), (Names{"latest", "step-10", "step-11", "step-12"}));
}

// The error of one rank's thread comes to every rank, and the saver can be used again.
TEST_F(BackgroundSave, OneRanksFailureIsEveryRanksErrorAtAPoll) {
  save(10);
  std::ofstream(folder_ + "/file") << "no folder";
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(odd_model(), 2, 3), axis);
    BackgroundSaver saver(run.engine, *run.optimizer);
    SaveRequest bad = request(20);
    if (axis.rank() == 1) bad.root = folder_ + "/file/checkpoints";
    saver.start(bad);
    const std::string message = error_of(ErrorKind::kIo, [&] { saver.wait(); });
    EXPECT_NE(message.find("rank 1: cannot "), std::string::npos) << message;
    EXPECT_FALSE(saver.busy());
    axis.barrier({"", "looked"});
    EXPECT_EQ(names(), (Names{"latest", "step-10"}));
    axis.barrier({"", "looked"});
    saver.start(request(20));
    saver.wait();
  });
  EXPECT_EQ(*find_checkpoint(root()).path, step(20));
}

TEST_F(BackgroundSave, ASecondSaveMeanwhileIsRefused) {
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(odd_model(), 2, 3), axis);
    BackgroundSaver saver(run.engine, *run.optimizer);
    saver.start(request(10));
    const std::string message = error_of(ErrorKind::kInternal, [&] { saver.start(request(11)); });
    EXPECT_NE(message.find("while that of step 10"), std::string::npos) << message;
    saver.wait();
  });
}

TEST_F(BackgroundSave, WhatIsAbandonedLeavesNothing) {
  save(10);
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(odd_model(), 2, 3), axis);
    BackgroundSaver(run.engine, *run.optimizer).start(request(20));
  });
  EXPECT_EQ(*find_checkpoint(root()).path, step(10));
  save(30);
  EXPECT_EQ(names(), (Names{"latest", "step-10", "step-30"}));
}

// What plan adds to a rank's memory is what the copy takes.
TEST_F(BackgroundSave, TakesTheMemoryThatIsForetold) {
  const plan::RunPlan plan = run_plan(odd_model(), 1, 0);
  run_ranks(1, [&](Communicator& axis) {
    TestRun run(plan, axis);
    std::int64_t bytes = 0;
    for (const LocalPiece& piece : local_pieces(run.engine, *run.optimizer, Part::kShard))
      bytes += (static_cast<std::int64_t>(piece.values.nbytes()) + 63) / 64 * 64;
    EXPECT_EQ(plan::snapshot_bytes(plan), bytes);
  });
}

}  // namespace
}  // namespace intarsia::checkpoint
