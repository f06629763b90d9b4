// Checkpoints between real updates of Adam.
#include <atomic>

#include "intarsia/checkpoint/testing_run.h"

namespace intarsia::checkpoint {
namespace {

using comm::Communicator;
using comm::run_ranks;

using AdamStep = CheckpointTest;

// Gradients that depend on the update, the parameter and the element only, so that every layout has the same ones.
void update(TestRun& run, std::int64_t number) {
  const at::NoGradGuard no_grad;
  for (const shard::FlatState& state : run.engine.states()) {
    if (!state.layout->trainable) continue;
    for (const plan::ParamSlot& slot : state.layout->slots) {
      const plan::Range elements = plan::param_range(slot, state.grad_range);
      if (elements.size() == 0) continue;
      const at::Tensor values = at::arange(elements.begin, elements.end, at::kLong);
      shard::FlatState::piece(state.grad, state.grad_range, {slot.offset + elements.begin, slot.offset + elements.end})
          .copy_(values.mul(31).add(17 * number + 7 * slot.param).remainder(101).sub(50).to(at::kFloat).div(64));
    }
  }
  run.optimizer->step(1e-2, 0.5);
  run.engine.publish();
}

// behaviours, kind 9: Adam after 100 updates, reshaped, one more: the update that there would have been without, bit
// for bit, and the counter 101.
TEST_F(AdamStep, The101stAfterReshapingIsThatOfTheRunThatWasNotReshaped) {
  const auto plan_of = [](int ranks, int stage, DType dtype) {
    plan::RunPlan plan = run_plan(odd_model(), ranks, stage, dtype);
    plan.optimizer.weight_decay = 0.1;
    return plan;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    run_ranks(2, [&](Communicator& axis) {
      TestRun run(plan_of(2, 3, dtype), axis);
      for (std::int64_t number = 1; number <= 100; ++number) update(run, number);
      save_checkpoint(request(100), run.engine, *run.optimizer);
      update(run, 101);
      save_checkpoint(request(101), run.engine, *run.optimizer);
    });
    for (const auto& [ranks, stage] : {std::pair{1, 0}, {2, 1}, {3, 3}, {3, 2}, {4, 3}, {4, 0}}) {
      SCOPED_TRACE(concat(short_name(dtype), ", ", ranks, " ranks, stage ", stage));
      std::atomic<std::int64_t> compared = 0, moved = 0;
      run_ranks(ranks, [&](Communicator& axis) {
        TestRun run(plan_of(ranks, stage, dtype), axis, 2), expected(plan_of(ranks, stage, dtype), axis, 3);
        load_checkpoint(step(100), run.engine, *run.optimizer);
        EXPECT_EQ(run.optimizer->updates(), 100);
        load_checkpoint(step(101), expected.engine, *expected.optimizer);
        const auto pieces = local_pieces(run.engine, *run.optimizer, Part::kHeld);
        const auto wanted = local_pieces(expected.engine, *expected.optimizer, Part::kHeld);
        ASSERT_EQ(pieces.size(), wanted.size());
        for (std::size_t i = 0; i < pieces.size(); ++i)
          moved += static_cast<int>(!at::equal(pieces[i].values, wanted[i].values));
        update(run, 101);
        EXPECT_EQ(run.optimizer->updates(), 101);
        for (std::size_t i = 0; i < pieces.size(); ++i) {
          EXPECT_TRUE(at::equal(pieces[i].values, wanted[i].values)) << pieces[i].stored_name();
          compared += pieces[i].values.numel();
        }
        axis.barrier({"", "compared"});
      });
      EXPECT_GT(moved, 0) << "the update changes nothing, so the comparison says nothing";
      EXPECT_GE(compared, 3 * (9 * 5 + 71 * 33 + 1 + 1 + 8));
    }
  }
}

// behaviours, kind 7: an asynchronous save after update 1, update 2 at once, load: counter 1, all moments of update 1.
TEST_F(AdamStep, ASaveInTheBackgroundHasTheMomentsOfItsCallThoughTheNextUpdateFollowsAtOnce) {
  for (const int stage : {0, 3}) {
    SCOPED_TRACE(concat("stage ", stage));
    const plan::RunPlan plan = run_plan(odd_model(), 2, stage);
    run_ranks(2, [&](Communicator& axis) {
      TestRun run(plan, axis);
      update(run, 1);
      save_checkpoint(request(1), run.engine, *run.optimizer);
      BackgroundSaver saver(run.engine, *run.optimizer);
      saver.start(request(2));
      update(run, 2);
      saver.wait();
      save_checkpoint(request(3), run.engine, *run.optimizer);
      TestRun second(plan, axis, 2);
      load_checkpoint(step(2), second.engine, *second.optimizer);
      EXPECT_EQ(second.optimizer->updates(), 1);
    });
    for (int rank = 0; rank < 2; ++rank) {
      const auto body = [&](int number) { return io::read_text_file(step(number) + "/" + body_name(rank), 1 << 20); };
      EXPECT_EQ(body(2), body(1));
      EXPECT_NE(body(2), body(3));
    }
  }
}

}  // namespace
}  // namespace intarsia::checkpoint
