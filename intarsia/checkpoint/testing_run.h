// Helpers of this folder's tests: a small run whose every stored element has a known value.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "intarsia/base/error.h"
#include "intarsia/checkpoint/inventory.h"
#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/save.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/io/file.h"
#include "intarsia/tensor/dtype_map.h"

namespace intarsia::checkpoint {

// Sizes that no number of ranks divides, a frozen parameter, a tied one, one of a single element.
inline plan::ModelSpec odd_model() {
  plan::ModelSpec model;
  model.units = {{"embed", {0}}, {"block", {1, 2, 3}}, {"head", {4, 5}}};
  const auto add = [&](const char* name, std::vector<std::int64_t> shape, int unit) -> plan::ParamSpec& {
    plan::ParamSpec& param = model.params.emplace_back();
    param.name = name;
    param.shape = std::move(shape);
    param.unit = unit;
    return param;
  };
  plan::ParamSpec& tied = add("embed.weight", {9, 5}, 0);
  tied.uses = 2;
  tied.tied_names = {"head.weight"};
  add("block.weight", {71, 33}, 1);
  add("block.frozen", {45, 30}, 1).frozen = true;
  add("block.bias", {1}, 1);
  add("head.scale", {}, 2);
  add("head.bias", {8}, 2);
  return model;
}

inline plan::RunPlan run_plan(plan::ModelSpec model, int ranks, int stage, DType compute = DType::kF32) {
  plan::RunPlan plan;
  plan.flats = plan::layout_units(model, ranks);
  plan.model = std::move(model);
  plan.ranks = ranks;
  plan.stage = stage;
  plan.placement = plan::placement_of_stage(stage);
  plan.compute_dtype = compute;
  plan.backend = plan::CommBackend::kThreads;
  return plan;
}

// The element's value, a different one for each element, kind and parameter.
inline at::Tensor known_values(const LocalPiece& piece) {
  double key = 1000.0 * static_cast<double>(piece.kind);
  for (const char c : piece.param->name) key = key * 1.01 + c;
  return at::arange(piece.elements.begin, piece.elements.end, at::kFloat).add_(key).mul_(0.1);
}

class TestRun {
 public:
  // Weights of `seed`, moments of zero.
  TestRun(const plan::RunPlan& plan, comm::Communicator& axis, std::uint64_t seed = 1)
      : weights_(seed),
        plan_(plan),
        engine(plan_, axis, weights_),
        optimizer(optim::make_optimizer(plan_, engine.states(), axis)) {}

  void fill_with_known_values() {
    const at::NoGradGuard no_grad;
    for (const LocalPiece& piece : local_pieces(engine, *optimizer, Part::kHeld))
      piece.values.copy_(known_values(piece));
    engine.publish();
  }
  // `saved` is the compute dtype of the run that saved: frozen weights have been rounded to it.
  void expect_known_values(DType saved) {
    for (const LocalPiece& piece : local_pieces(engine, *optimizer, Part::kHeld)) {
      at::Tensor expected = known_values(piece);
      if (piece.kind == TensorKind::kWeight) expected = expected.to(tensor::scalar_type(saved));
      EXPECT_TRUE(at::equal(piece.values, expected.to(piece.values.scalar_type()))) << piece.stored_name();
      if (piece.kind == TensorKind::kMaster) expect_published(piece);
    }
    engine.world().barrier({"", "compared"});
  }

  plan::RandomWeights weights_;
  plan::RunPlan plan_;
  shard::Engine engine;
  std::unique_ptr<optim::Optimizer> optimizer;

 private:
  // Every copy in compute dtype that this rank holds comes from the masters.
  void expect_published(const LocalPiece& piece) {
    for (const shard::FlatState& state : engine.states()) {
      for (const plan::ParamSlot& slot : state.layout->slots) {
        if (&plan_.model.params[static_cast<std::size_t>(slot.param)] != piece.param) continue;
        LocalPiece held = piece;
        held.elements = plan::param_range(slot, state.held);
        const at::Tensor compute = shard::FlatState::piece(
            state.compute, state.held, {slot.offset + held.elements.begin, slot.offset + held.elements.end});
        EXPECT_TRUE(at::equal(compute, known_values(held).to(compute.scalar_type()))) << piece.stored_name();
      }
    }
  }
};

// A test with a folder of its own, in which ROOT/checkpoints is root().
class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "intarsia-checkpoint-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string root() const { return folder_ + "/checkpoints"; }
  std::string step(std::int64_t number) const { return root() + "/step-" + std::to_string(number); }
  SaveRequest request(std::int64_t number, int keep = 0, std::int64_t keep_every = 0) const {
    return {.root = root(),
            .progress = {.step = number, .data_position = 16 * number, .tokens = 1000 * number, .seed = 7},
            .config = "{\"train_batch_size\": 16}",
            .model_config = "{}",
            .keep = keep,
            .keep_every = keep_every};
  }
  // Saves the known values, on `ranks` ranks.
  void save(std::int64_t number, int ranks = 2, int keep = 0, int stage = 3, std::int64_t keep_every = 0) const {
    comm::run_ranks(ranks, [&](comm::Communicator& axis) {
      TestRun run(run_plan(odd_model(), ranks, stage), axis);
      run.fill_with_known_values();
      run.optimizer->set_updates(number);
      save_checkpoint(request(number, keep, keep_every), run.engine, *run.optimizer);
    });
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(root())) found.push_back(entry.path().filename());
    std::ranges::sort(found);
    return found;
  }

  std::string folder_;
};

// The message of the Error that `action` must throw.
inline std::string error_of(ErrorKind kind, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace intarsia::checkpoint
