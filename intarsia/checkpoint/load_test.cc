#include "intarsia/checkpoint/load.h"

#include <atomic>
#include <fstream>

#include "intarsia/checkpoint/testing_run.h"
#include "intarsia/io/file.h"

namespace intarsia::checkpoint {
namespace {

using comm::Communicator;
using comm::run_ranks;

using Load = CheckpointTest;

// behaviours, kind 8: load, save at once under another tag, load: all tensors and counters bit-equal.
TEST_F(Load, SavedAndLoadedTwiceIsBitEqualInEveryStageAndNumberOfRanks) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (int ranks = 1; ranks <= 4; ++ranks) {
        SCOPED_TRACE(concat(short_name(dtype), ", stage ", stage, ", ranks ", ranks));
        const plan::RunPlan plan = run_plan(odd_model(), ranks, stage, dtype);
        run_ranks(ranks, [&](Communicator& axis) {
          TestRun first(plan, axis);
          first.fill_with_known_values();
          first.optimizer->set_updates(9);
          EXPECT_EQ(save_checkpoint(request(10), first.engine, *first.optimizer).path, step(10));
          TestRun second(plan, axis, 2);
          const Manifest manifest = load_checkpoint(step(10), second.engine, *second.optimizer);
          second.expect_known_values(dtype);
          EXPECT_EQ(second.optimizer->updates(), 9);
          Progress expected = request(10).progress;
          expected.updates = 9;
          EXPECT_EQ(manifest.progress, expected);
          EXPECT_EQ(manifest.config, request(10).config);
          save_checkpoint(request(11), second.engine, *second.optimizer);
          TestRun third(plan, axis, 3);
          load_checkpoint(step(11), third.engine, *third.optimizer);
          third.expect_known_values(dtype);
          EXPECT_EQ(third.optimizer->updates(), 9);
        });
        for (int rank = 0; rank < ranks; ++rank)
          EXPECT_EQ(io::read_text_file(step(10) + "/" + body_name(rank), 1 << 20),
                    io::read_text_file(step(11) + "/" + body_name(rank), 1 << 20));
      }
    }
  }
}

// behaviours, kind 8: a linear decay from 1 to 0 in 100 steps, saved after 10: the next rate is 0.9, after a second
// save and load as well.
TEST_F(Load, TheNextRateIsTheSameAfterAnyNumberOfLoads) {
  plan::LrSchedule schedule;
  schedule.kind = plan::ScheduleKind::kHfLinear;
  schedule.base_lr = 1;
  schedule.total_steps = 100;
  run_ranks(2, [&](Communicator& axis) {
    const plan::RunPlan plan = run_plan(odd_model(), 2, 3);
    TestRun first(plan, axis);
    first.optimizer->set_updates(10);
    save_checkpoint(request(10), first.engine, *first.optimizer);
    for (const int number : {11, 12}) {
      TestRun next(plan, axis, 2);
      const Manifest manifest = load_checkpoint(step(number - 1), next.engine, *next.optimizer);
      EXPECT_DOUBLE_EQ(schedule.lr_at_update(next.optimizer->updates() + 1), 0.9);
      EXPECT_EQ(manifest.progress.updates, 10);
      save_checkpoint(request(number), next.engine, *next.optimizer);
    }
  });
}

// behaviours, kind 9: parameters of 5 and 8 elements, moments of the element's index, saved on 2 ranks, loaded on 3.
TEST_F(Load, OfFiveAndEightElementsEveryMomentEqualsItsIndexOnThreeRanks) {
  plan::ModelSpec model;
  model.units = {{"unit", {0, 1}}};
  for (const auto& [name, numel] : {std::pair("five", 5), std::pair("eight", 8)})
    model.params.push_back({.name = name, .shape = {numel}});
  const auto for_moments = [](TestRun& run, const std::function<void(const LocalPiece&, const at::Tensor&)>& use) {
    const at::NoGradGuard no_grad;
    for (const LocalPiece& piece : local_pieces(run.engine, *run.optimizer, Part::kHeld))
      if (piece.kind == TensorKind::kExpAvg || piece.kind == TensorKind::kExpAvgSq)
        use(piece, at::arange(piece.elements.begin, piece.elements.end, at::kFloat));
  };
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(model, 2, 3), axis);
    for_moments(run, [](const LocalPiece& piece, const at::Tensor& index) { piece.values.copy_(index); });
    save_checkpoint(request(1), run.engine, *run.optimizer);
  });
  std::atomic<std::int64_t> compared = 0;
  run_ranks(3, [&](Communicator& axis) {
    TestRun run(run_plan(model, 3, 3), axis, 2);
    load_checkpoint(step(1), run.engine, *run.optimizer);
    for_moments(run, [&](const LocalPiece& piece, const at::Tensor& index) {
      EXPECT_TRUE(at::equal(piece.values, index)) << piece.stored_name();
      compared += index.numel();
    });
  });
  EXPECT_EQ(compared, 2 * 13);
}

struct Shape {
  int ranks;
  int stage;
  DType dtype;
};

// behaviours, kind 9: saved on 2 ranks, loaded on 3: every moment equals its index; padding is never data.
TEST_F(Load, AnyLayoutLoadsInAnyOther) {
  const Shape shapes[] = {{1, 0, DType::kF32},  {2, 3, DType::kBF16}, {3, 3, DType::kF32},
                          {3, 1, DType::kBF16}, {4, 2, DType::kF32},  {4, 0, DType::kBF16}};
  for (const Shape& from : shapes) {
    run_ranks(from.ranks, [&](Communicator& axis) {
      TestRun run(run_plan(odd_model(), from.ranks, from.stage, from.dtype), axis);
      run.fill_with_known_values();
      save_checkpoint(request(1), run.engine, *run.optimizer);
    });
    for (const Shape& to : shapes) {
      SCOPED_TRACE(concat(from.ranks, " ranks, stage ", from.stage, " -> ", to.ranks, " ranks, stage ", to.stage));
      run_ranks(to.ranks,
                [&](Communicator& axis) {
                  TestRun run(run_plan(odd_model(), to.ranks, to.stage, to.dtype), axis, 2);
                  load_checkpoint(step(1), run.engine, *run.optimizer);
                  run.expect_known_values(from.dtype);
                },
                {.force_copy = to.ranks == 3});
    }
  }
}

// Sharded, packed and owned state tensors alike: docs/optimizers.md.
TEST_F(Load, EveryOptimizersStateLoadsInAnyOtherLayout) {
  using plan::OptimizerKind;
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kLion, OptimizerKind::kAdagrad,
                                   OptimizerKind::kLamb, OptimizerKind::kAdafactor, OptimizerKind::kMuon}) {
    SCOPED_TRACE(concat("optimizer kind ", static_cast<int>(kind)));
    const auto plan_of = [&](int ranks, int stage) {
      plan::RunPlan plan = run_plan(odd_model(), ranks, stage, DType::kBF16);
      plan.optimizer.kind = kind;
      plan.optimizer.momentum = 0.9;
      plan.optimizer.ema_decay = 0.99;
      return plan;
    };
    run_ranks(3, [&](Communicator& axis) {
      TestRun run(plan_of(3, 3), axis);
      run.fill_with_known_values();
      save_checkpoint(request(1), run.engine, *run.optimizer);
    });
    for (const auto& [ranks, stage] : {std::pair{3, 3}, {1, 0}, {2, 0}, {2, 2}})
      run_ranks(ranks, [&](Communicator& axis) {
        TestRun run(plan_of(ranks, stage), axis, 2);
        load_checkpoint(step(1), run.engine, *run.optimizer);
        run.expect_known_values(DType::kBF16);
      });
  }
}

TEST_F(Load, AnotherOptimizersStateIsRefusedByTheTensorsName) {
  save(1);
  run_ranks(2, [&](Communicator& axis) {
    plan::RunPlan plan = run_plan(odd_model(), 2, 3);
    plan.optimizer.kind = plan::OptimizerKind::kAdagrad;
    TestRun run(plan, axis);
    const std::string message =
        error_of(ErrorKind::kFormat, [&] { load_checkpoint(step(1), run.engine, *run.optimizer); });
    EXPECT_NE(message.find("lacks \"sum.embed.weight\", which this run's optimizer keeps"), std::string::npos)
        << message;
  });
}

// Loads step 1 into `model` on two ranks, expects an error on both, and the values of before.
std::string refused(const std::string& path, const plan::ModelSpec& model, ErrorKind kind = ErrorKind::kFormat) {
  std::string message;
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(model, 2, 3), axis, 2);
    std::vector<at::Tensor> before;
    for (const LocalPiece& piece : local_pieces(run.engine, *run.optimizer, Part::kHeld))
      before.push_back(piece.values.clone());
    const std::string mine = error_of(kind, [&] { load_checkpoint(path, run.engine, *run.optimizer); });
    std::size_t index = 0;
    for (const LocalPiece& piece : local_pieces(run.engine, *run.optimizer, Part::kHeld))
      EXPECT_TRUE(at::equal(piece.values, before[index++])) << piece.stored_name() << " was changed";
    if (axis.rank() == 1) message = mine;
  });
  return message;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Load, AnotherModelIsRefusedByTheTensorsName) {
  save(1);
  plan::ModelSpec model = odd_model();
  model.params[1].shape = {33, 71};
  EXPECT_TRUE(contains(refused(step(1), model), "\"master.block.weight\" has shape [71, 33], the model's is [33, 71]"));
  model = odd_model();
  model.params[5].name = "head.other";
  EXPECT_TRUE(contains(refused(step(1), model), "lacks \"master.head.other\", which this model has"));
  model = odd_model();
  model.units[2].params = {4};
  EXPECT_TRUE(contains(refused(step(1), model), "head.bias\", which this model does not have"));
  model = odd_model();
  model.params[2].frozen = false;
  EXPECT_TRUE(contains(refused(step(1), model), "lacks \"master.block.frozen\""));
}

TEST_F(Load, OneRanksDamagedFileIsRefusedOnAll) {
  save(1);
  const std::string body = step(1) + "/" + body_name(1);
  std::string bytes = io::read_text_file(body, 1 << 20);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  io::write_file_atomic(body, bytes);
  const std::string message = refused(step(1), odd_model());
  EXPECT_TRUE(contains(message, "rank 1: " + body + " is damaged")) << message;
  std::filesystem::remove(body);
  EXPECT_TRUE(contains(refused(step(1), odd_model(), ErrorKind::kIo), body));
  EXPECT_TRUE(contains(refused(root() + "/step-2", odd_model(), ErrorKind::kIo), "manifest.json"));
}

// Bytes that the calling thread has asked the system to read.
std::int64_t bytes_read() {
  std::ifstream file("/proc/thread-self/io");
  std::string word;
  std::int64_t value = -1;
  while (file >> word >> value)
    if (word == "rchar:") return value;
  return -1;
}

// Of a model of 24 MB of state: each rank reads what it holds, and of headers and manifest what is small.
TEST_F(Load, EachRankReadsOnlyTheBytesItNeeds) {
  if (bytes_read() < 0) GTEST_SKIP() << "/proc/thread-self/io is not there";
  plan::ModelSpec model = odd_model();
  model.params[1].shape = {2000, 1000};
  const auto load = [&](int ranks, Verify verify) {
    run_ranks(ranks, [&](Communicator& axis) {
      TestRun run(run_plan(model, ranks, 3), axis, 2);
      std::int64_t needed = 0;
      for (const LocalPiece& piece : local_pieces(run.engine, *run.optimizer, Part::kHeld))
        needed += static_cast<std::int64_t>(piece.values.nbytes());
      EXPECT_LT(needed, 25'000'000 / ranks);
      const std::int64_t before = bytes_read();
      load_checkpoint(step(1), run.engine, *run.optimizer, verify);
      const std::int64_t read = bytes_read() - before;
      EXPECT_GE(read, needed);
      // Checked first, then read: twice the bytes, and for each run of elements the ends of its blocks; the run's three
      // large tensors lie in at most two files.
      const std::int64_t most = verify == Verify::kSizes
                                    ? needed + 100'000
                                    : 2 * needed + 2 * static_cast<std::int64_t>(kBlockBytes) * 3 * 2 + 100'000;
      EXPECT_LE(read, most) << ranks << " ranks";
    });
  };
  run_ranks(2, [&](Communicator& axis) {
    TestRun run(run_plan(model, 2, 3), axis);
    save_checkpoint(request(1), run.engine, *run.optimizer);
  });
  for (const int ranks : {1, 2, 3, 4})
    for (const Verify verify : {Verify::kSizes, Verify::kHashes}) load(ranks, verify);
}

}  // namespace
}  // namespace intarsia::checkpoint
