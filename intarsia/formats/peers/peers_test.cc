// Every checkpoint that the peers wrote (tests/fixtures/checkpoints) is read bit for bit; every malformed one is
// refused.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/formats/indexed_dataset.h"
#include "intarsia/formats/model_directory.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/formats/safetensors.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kFixtures = "tests/fixtures/checkpoints/";

json read_json(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

struct PeerCase {
  std::string folder;  // of the case
  std::string path;    // of the checkpoint
};
void PrintTo(const PeerCase& peer, std::ostream* out) { *out << peer.path; }

std::vector<PeerCase> cases() {
  std::vector<PeerCase> out;
  for (const char* kind : {"deepspeed", "dcp"}) {
    if (!fs::exists(kFixtures + kind)) continue;
    for (const auto& entry : fs::directory_iterator(kFixtures + kind)) {
      const std::string folder = entry.path().string();
      for (const char* name : {"/ckpt", "/universal", "/ckpt/sharded"})
        if (fs::exists(folder + name)) out.push_back({folder, folder + name});
    }
  }
  std::sort(out.begin(), out.end(), [](const PeerCase& a, const PeerCase& b) { return a.path < b.path; });
  return out;
}

std::string test_name(const testing::TestParamInfo<PeerCase>& info) {
  std::string name = info.param.path.substr(kFixtures.size());
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

class Peers : public testing::TestWithParam<PeerCase> {};

void expect_equal(const LogicalCheckpoint& checkpoint, const LogicalTensor* tensor, const SafetensorsFile& expected,
                  const TensorInfo& info) {
  ASSERT_NE(tensor, nullptr) << info.name;
  EXPECT_EQ(tensor->shape, info.shape) << info.name;
  std::vector<float> values(static_cast<std::size_t>(info.numel()));
  // In two parts, so that a range that begins inside a piece is read, too.
  const std::int64_t middle = info.numel() / 3;
  checkpoint.read(*tensor, 0, middle, values.data());
  checkpoint.read(*tensor, middle, info.numel(), values.data() + middle);
  const auto bytes = expected.bytes(info);
  ASSERT_EQ(bytes.size(), values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(values.data(), bytes.data(), bytes.size()), 0) << info.name;
}

TEST_P(Peers, WeightsAndMomentsAreReadBitForBit) {
  const LogicalCheckpoint checkpoint = open_checkpoint(GetParam().path);
  checkpoint.verify();
  const json expected = read_json(GetParam().folder + "/expected.json");
  const SafetensorsFile weights = SafetensorsFile::open(GetParam().folder + "/expected.safetensors");
  for (const TensorInfo& info : weights.tensors())
    expect_equal(checkpoint, checkpoint.weight(info.name), weights, info);
  // Nothing else, but other names of tied weights.
  for (const LogicalTensor* tensor : checkpoint.weights())
    EXPECT_TRUE(weights.find(tensor->name) != nullptr || expected["tied"].contains(tensor->name)) << tensor->name;
  for (const auto& [other, name] : expected["tied"].items()) EXPECT_NE(checkpoint.weight(other), nullptr) << other;

  if (!expected.value("moments_in_checkpoint", true)) {
    EXPECT_NE(checkpoint.state().no_optimizer_state, "");
    return;
  }
  EXPECT_EQ(checkpoint.state().no_optimizer_state, "");
  const SafetensorsFile moments = SafetensorsFile::open(GetParam().folder + "/expected_moments.safetensors");
  for (const TensorInfo& info : moments.tensors()) {
    const std::size_t dot = info.name.find('.');
    expect_equal(checkpoint, checkpoint.find(info.name.substr(0, dot), info.name.substr(dot + 1)), moments, info);
  }
}

TEST_P(Peers, CountersScheduleAndLossScaleAreRead) {
  const LogicalCheckpoint checkpoint = open_checkpoint(GetParam().path);
  const TrainingState& state = checkpoint.state();
  const json expected = read_json(GetParam().folder + "/expected.json");
  if (!expected.value("moments_in_checkpoint", true)) return;
  const json& updates = expected["adam_step"];
  EXPECT_EQ(state.updates, updates.is_object() ? updates.begin()->get<double>() : updates.get<double>());
  if (expected.contains("global_steps")) {
    EXPECT_EQ(state.step, expected["global_steps"].get<std::int64_t>());
  }
  if (expected.contains("global_samples")) {
    EXPECT_EQ(state.samples, expected["global_samples"].get<std::int64_t>());
  }
  if (expected.contains("loss_scale") && state.loss_scale) {
    EXPECT_EQ(state.loss_scale->scale, expected["loss_scale"].get<double>());
  }
  if (expected["precision"] == "fp16") {
    EXPECT_TRUE(state.loss_scale && state.loss_scale->dynamic);
  }
  ASSERT_EQ(state.groups.size(), expected["param_groups"].size());
  for (const json& wanted : expected["param_groups"]) {
    std::vector<std::string> names = wanted["names"];
    std::sort(names.begin(), names.end());
    bool found = false;
    for (const ParameterGroup& group : state.groups) {
      std::vector<std::string> have = group.names;
      std::sort(have.begin(), have.end());
      if (have != names) continue;
      found = true;
      EXPECT_EQ(group.numbers.at("weight_decay"), wanted["weight_decay"].get<double>());
      EXPECT_EQ(group.numbers.at("lr"), expected["lr"][0].get<double>());
      EXPECT_EQ(group.numbers.at("beta2"), 0.98);
      EXPECT_EQ(group.numbers.at("eps"), 1e-8);
    }
    EXPECT_TRUE(found) << wanted;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Peers, testing::ValuesIn(cases()), test_name);

TEST(MalformedCheckpoints, AreAllRefusedWithFileAndCause) {
  const fs::path folder = kFixtures + "malformed";
  const json expected = read_json((folder / "expected.json").string());
  std::size_t refused = 0;
  for (const json& input : expected["cases"]) {
    const std::string name = input["path"], path = (folder / name).string();
    if (input["kind"] == "indexed") continue;  // token files: indexed_dataset_test.cc
    try {
      // A bare name of a folder is opened as what it is; files of torch.save under their suffix.
      open_checkpoint(path).verify();
      // The one class that is not known may be left alone where nobody asks for it, and packed records may be read.
      ADD_FAILURE() << name << " was read";
    } catch (const Error& error) {
      ++refused;
      const std::string message = error.what();
      EXPECT_TRUE(error.kind() == ErrorKind::kFormat || error.kind() == ErrorKind::kIo ||
                  error.kind() == ErrorKind::kUnsupported)
          << name << ": " << message;
      for (const json& word : input["message_names"])
        EXPECT_NE(message.find(word.get<std::string>()), std::string::npos) << name << ": " << message;
      EXPECT_EQ(message.find('\n'), message.rfind('\n')) << message;
    }
  }
  EXPECT_GT(refused, 40u);
  EXPECT_FALSE(fs::exists("PWNED"));
  EXPECT_FALSE(fs::exists(folder / "PWNED"));
}

// Bytes of the files that say where things are, changed at random: the checkpoint is read, or an Error is thrown.
TEST(DamagedCheckpoints, AreReadOrRefused) {
  const fs::path folder = fs::temp_directory_path() / ("intarsia-damaged-" + std::to_string(::getpid()));
  std::uint64_t state = 7;
  const auto random = [&](std::size_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state >> 33) % below;
  };
  int refused = 0, read = 0;
  for (const auto& [from, file] :
       {std::pair("dcp/fsdp2-w2-fp32/ckpt", ".metadata"), std::pair("dcp/fsdp2-w2-fp32/ckpt", "__0_0.distcp"),
        std::pair("deepspeed/z2-w2-bf16/ckpt", "global_step3/mp_rank_00_model_states.pt"),
        std::pair("deepspeed/z3-w2-fp32/ckpt", "global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        std::pair("dcp/hf-storage-w2/ckpt", "shard-00001-model-00001-of-00001.safetensors")}) {
    fs::remove_all(folder);
    fs::copy(kFixtures + from, folder, fs::copy_options::recursive);
    std::ifstream in(folder / file, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    for (int round = 0; round < 60; ++round) {
      std::string bytes = whole;
      for (std::size_t i = 0; i < 1 + random(4); ++i) bytes[random(bytes.size())] = static_cast<char>(random(256));
      if (round % 10 == 9) bytes.resize(random(bytes.size()));
      std::ofstream(folder / file, std::ios::binary) << bytes;
      try {
        const LogicalCheckpoint checkpoint = open_checkpoint(folder.string());
        checkpoint.verify();
        std::vector<float> values;
        for (const LogicalTensor& tensor : checkpoint.tensors()) {
          values.resize(static_cast<std::size_t>(tensor.numel()));
          checkpoint.read(tensor, 0, tensor.numel(), values.data());
        }
        ++read;
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::kInternal) << error.what();
        ++refused;
      }
    }
  }
  fs::remove_all(folder);
  EXPECT_GT(refused, 100);
  EXPECT_GT(read, 10);  // a changed weight of safetensors shows nowhere
}

TEST(RefusedByName, MegatronAndLocalStateDict) {
  const fs::path folder = fs::temp_directory_path() / ("intarsia-peers-" + std::to_string(::getpid()));
  const auto refusal = [&](const char* file) {
    fs::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << "1";
    std::string message;
    try {
      open_checkpoint(folder.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported) << error.what();
      message = error.what();
    }
    fs::remove_all(folder);
    return message;
  };
  EXPECT_NE(refusal("latest_checkpointed_iteration.txt").find("Megatron-LM"), std::string::npos);
  EXPECT_NE(refusal("mp_rank_00/model_optim_rng.pt").find("Megatron-LM"), std::string::npos);
  EXPECT_NE(refusal("pytorch_model_fsdp_rank0.bin").find("LOCAL_STATE_DICT"), std::string::npos);
  EXPECT_NE(refusal("mp_rank_01_model_states.pt").find("tensor parallelism"), std::string::npos);
  EXPECT_NE(refusal("layer_00-model_00-model_states.pt").find("pipeline parallelism"), std::string::npos);
}

TEST(FullStateDict, WeightsAndOptimizerOfAnAcceleratesFolderAreRead) {
  const LogicalCheckpoint checkpoint = open_checkpoint("tests/fixtures/full_state_dict");
  checkpoint.verify();
  EXPECT_EQ(checkpoint.state().updates, 7);
  EXPECT_EQ(checkpoint.state().groups.at(0).names, (std::vector<std::string>{"a.weight", "b.weight"}));
  EXPECT_EQ(checkpoint.state().groups.at(0).numbers.at("beta2"), 0.95);
  for (const auto& [kind, first] :
       {std::pair("weight", 0.0F), std::pair("exp_avg", 100.0F), std::pair("exp_avg_sq", 200.0F)}) {
    const LogicalTensor* const tensor = checkpoint.find(kind, "a.weight");
    ASSERT_NE(tensor, nullptr) << kind;
    EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{2, 3}));
    std::vector<float> values(6);
    checkpoint.read(*tensor, 0, 6, values.data());
    for (int i = 0; i < 6; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], first + static_cast<float>(i));
  }
}

TEST(FullStateDict, OneFileOfTorchSaveIsReadWithItsTies) {
  const LogicalCheckpoint checkpoint = open_checkpoint("tests/fixtures/torch_bin/pytorch_model.bin");
  EXPECT_EQ(checkpoint.weights().size(), checkpoint.tensors().size());
  EXPECT_EQ(checkpoint.weight("lm_head.weight"), checkpoint.weight("model.embed_tokens.weight"));
  const SafetensorsFile wanted = SafetensorsFile::open("tests/fixtures/hf/llama-tied/model/model.safetensors");
  for (const TensorInfo& info : wanted.tensors()) expect_equal(checkpoint, checkpoint.weight(info.name), wanted, info);
}

// A two-dimensional box: rows of it lie apart in the tensor.
TEST(Pieces, BoxesInTwoDimensionsAreReadAndChecked) {
  const fs::path path = fs::temp_directory_path() / ("intarsia-boxes-" + std::to_string(::getpid()));
  const std::vector<float> stored = {0, 1, 4, 5, 2, 3, 6, 7};  // left half, then right half of [[0,1,2,3],[4,5,6,7]]
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(stored.data()), 32);
  CheckpointContents contents;
  contents.files = {{.path = path.string(), .bytes = 32}};
  contents.tensors = {{.name = "w", .shape = {2, 4}, .pieces = {{0, 0, {0, 0}, {2, 2}}, {0, 16, {0, 2}, {2, 2}}}}};
  const LogicalCheckpoint checkpoint(contents);
  std::vector<float> out(8);
  checkpoint.read(*checkpoint.weight("w"), 0, 8, out.data());
  EXPECT_EQ(out, (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  checkpoint.read(*checkpoint.weight("w"), 3, 6, out.data());
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 3), (std::vector<float>{3, 4, 5}));
  const auto message = [&] {
    try {
      const LogicalCheckpoint again(contents);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  contents.tensors[0].pieces[1].offsets = {0, 1};
  EXPECT_NE(message().find("overlap"), std::string::npos);
  contents.tensors[0].pieces.pop_back();
  EXPECT_NE(message().find("4 of 8"), std::string::npos);
  contents.tensors[0].pieces = {{0, 0, {1, 0}, {2, 4}}};
  EXPECT_NE(message().find("runs past"), std::string::npos);
  contents.tensors[0].pieces = {{0, 4, {0, 0}, {2, 4}}};
  EXPECT_NE(message().find("ends at byte 32"), std::string::npos);
  fs::remove(path);
}

}  // namespace
}  // namespace intarsia::formats
