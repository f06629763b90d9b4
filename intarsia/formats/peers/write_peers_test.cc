// What write_dcp and write_universal write is what was read, bit for bit. That the peers load it:
// tests/slow/go_back.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "intarsia/formats/model_directory.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/formats/peers/write_dcp.h"
#include "intarsia/formats/peers/write_hf.h"
#include "intarsia/formats/peers/write_universal.h"
#include "intarsia/formats/test_folder.h"

namespace intarsia::formats {
namespace {

const std::string kFixtures = "tests/fixtures/checkpoints/deepspeed/";

// A state with the groups that a checkpoint of DeepSpeed tells.
PeerState state_of(const LogicalCheckpoint& checkpoint) {
  PeerState out;
  for (const LogicalTensor* weight : checkpoint.weights()) {
    PeerParam param{.name = weight->name, .shape = weight->shape, .weight = weight};
    for (const auto& [other, name] : checkpoint.aliases())
      if (name == weight->name) param.tied_names.push_back(other);
    for (const char* kind : {"exp_avg", "exp_avg_sq"})
      if (const LogicalTensor* const tensor = checkpoint.find(kind, weight->name)) param.states.emplace(kind, tensor);
    out.params.push_back(std::move(param));
  }
  const TrainingState& state = checkpoint.state();
  for (const ParameterGroup& group : state.groups) {
    out.groups.push_back({.lr = group.numbers.at("lr"),
                          .initial_lr = 0.5,
                          .beta1 = group.numbers.at("beta1"),
                          .beta2 = group.numbers.at("beta2"),
                          .eps = group.numbers.at("eps"),
                          .weight_decay = group.numbers.at("weight_decay")});
    for (std::size_t i = 0; i < out.params.size(); ++i)
      if (std::ranges::find(group.names, out.params[i].name) != group.names.end())
        out.groups.back().params.push_back(i);
  }
  out.step = *state.step;
  out.updates = *state.updates;
  out.samples = state.samples.value_or(0);
  out.loss_scale = state.loss_scale;
  return out;
}

std::vector<float> values_of(const LogicalCheckpoint& checkpoint, const LogicalTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.numel()));
  checkpoint.read(tensor, 0, tensor.numel(), out.data());
  return out;
}

void expect_same_tensors(const LogicalCheckpoint& before, const LogicalCheckpoint& after) {
  for (const LogicalTensor& tensor : before.tensors()) {
    const bool is_weight = tensor.kind == "master" || tensor.kind == "weight";
    const LogicalTensor* const found = is_weight ? after.weight(tensor.name) : after.find(tensor.kind, tensor.name);
    ASSERT_NE(found, nullptr) << tensor.stored_name();
    EXPECT_EQ(found->shape, tensor.shape) << tensor.stored_name();
    const std::vector<float> left = values_of(before, tensor), right = values_of(after, *found);
    ASSERT_EQ(left.size(), right.size());
    EXPECT_EQ(std::memcmp(left.data(), right.data(), left.size() * sizeof(float)), 0) << tensor.stored_name();
  }
  for (const auto& [other, name] : before.aliases()) EXPECT_NE(after.weight(other), nullptr) << other;
}

void expect_same_groups(const TrainingState& before, const TrainingState& after) {
  EXPECT_EQ(after.updates, before.updates);
  ASSERT_EQ(after.groups.size(), before.groups.size());
  for (std::size_t i = 0; i < before.groups.size(); ++i) {
    std::vector<std::string> left = before.groups[i].names, right = after.groups[i].names;
    std::ranges::sort(left);
    std::ranges::sort(right);
    EXPECT_EQ(right, left) << "group " << i;
    for (const auto& [key, number] : before.groups[i].numbers) {
      EXPECT_EQ(after.groups[i].numbers.at(key), number) << key;
    }
    EXPECT_EQ(after.groups[i].numbers.at("initial_lr"), 0.5);
  }
}

class WritePeers : public TestFolder {
 protected:
  void expect_round_trip(const std::string& name) {
    const LogicalCheckpoint before = open_checkpoint(kFixtures + name);
    const PeerState state = state_of(before);
    write_dcp(before, path("dcp"), state, DcpLayout::kOneFolder);
    write_dcp(before, path("accelerate"), state, DcpLayout::kAccelerate);
    write_universal(before, path("universal"), state);
    for (const char* folder : {"dcp", "accelerate", "universal"}) {
      SCOPED_TRACE(folder);
      const LogicalCheckpoint after = open_checkpoint(path(folder));
      after.verify();
      EXPECT_TRUE(after.has_checksums());
      expect_same_tensors(before, after);
      expect_same_groups(before.state(), after.state());
    }
    const TrainingState universal = open_checkpoint(path("universal")).state();
    EXPECT_EQ(universal.step, state.step);
    EXPECT_EQ(universal.samples, state.samples);
    EXPECT_EQ(universal.schedule.at("last_batch_iteration"), static_cast<double>(state.updates - 1));
    if (!state.loss_scale || !state.loss_scale->dynamic) return;
    ASSERT_TRUE(universal.loss_scale.has_value());
    EXPECT_EQ(universal.loss_scale->scale, state.loss_scale->scale);
    EXPECT_EQ(universal.loss_scale->iteration, state.loss_scale->iteration);
    EXPECT_EQ(universal.loss_scale->last_overflow, state.loss_scale->last_overflow);
    EXPECT_EQ(universal.loss_scale->hysteresis_left, state.loss_scale->hysteresis_left);
    EXPECT_EQ(universal.loss_scale->window, state.loss_scale->window);
  }
};

TEST_F(WritePeers, TwoGroupsComeBackBitForBit) { expect_round_trip("z2-w2-gas-decay/ckpt"); }
TEST_F(WritePeers, TheLossScaleOfFp16ComesBack) { expect_round_trip("z2-w2-fp16/ckpt"); }
TEST_F(WritePeers, FrozenAndTiedWeightsComeBack) { expect_round_trip("z3-w3-frozen-tied/ckpt"); }

TEST_F(WritePeers, AFolderThatHasACheckpointIsRefused) {
  const LogicalCheckpoint before = open_checkpoint(kFixtures + "z1-w2-fp32/ckpt");
  const PeerState state = state_of(before);
  write_dcp(before, path("dcp"), state, DcpLayout::kOneFolder);
  write_universal(before, path("universal"), state);
  error_of(ErrorKind::kUsage, [&] { write_dcp(before, path("dcp"), state, DcpLayout::kOneFolder); });
  error_of(ErrorKind::kUsage, [&] { write_universal(before, path("universal"), state); });
}

TEST_F(WritePeers, WeightsAloneAreADcpCheckpointAndNoUniversalOne) {
  const LogicalCheckpoint before = open_checkpoint("tests/fixtures/checkpoints/dcp/hf-storage-w2/ckpt");
  PeerState state;
  for (const LogicalTensor* weight : before.weights())
    state.params.push_back({.name = weight->name, .shape = weight->shape, .weight = weight});
  write_dcp(before, path("dcp"), state, DcpLayout::kAccelerate);
  const LogicalCheckpoint after = open_checkpoint(path("dcp"));
  expect_same_tensors(before, after);
  EXPECT_NE(after.state().no_optimizer_state, "");
  EXPECT_NE(
      error_of(ErrorKind::kUsage, [&] { write_universal(before, path("universal"), state); }).find("weights only"),
      std::string::npos);
}

TEST_F(WritePeers, ShardsHaveTheSizeThatWasAskedForAndAnIndex) {
  const LogicalCheckpoint before = open_checkpoint(kFixtures + "z1-w2-fp32/ckpt");
  constexpr std::int64_t kMost = 8000;
  write_hf(before, path("hf"), {.max_shard_bytes = kMost});
  const ModelDirectory model = ModelDirectory::open(path("hf"));
  EXPECT_GT(model.files().size(), 3u);
  for (const TensorFile& file : model.files()) {
    std::int64_t bytes = 0;
    for (const TensorInfo& tensor : file.tensors()) bytes += static_cast<std::int64_t>(tensor.num_bytes());
    EXPECT_TRUE(bytes <= kMost || file.tensors().size() == 1) << file.path();
  }
  expect_same_tensors(open_checkpoint(path("hf")), before);
  std::ifstream index(path("hf/model.safetensors.index.json"));
  const std::string text((std::istreambuf_iterator<char>(index)), {});
  EXPECT_NE(text.find("\"total_size\": 34640\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\"total_parameters\": 8660,\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace intarsia::formats
