// A run goes on from a peer's checkpoint: its next three losses are the peer's, on any number of ranks and in any
// stage.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "intarsia/checkpoint/load_peer.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/step.h"

namespace intarsia::interop {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kFixtures = "tests/fixtures/checkpoints/";

json read_json(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

at::Tensor read_tensor(const formats::SafetensorsFile& file, const std::string& name) {
  const formats::TensorInfo& info = file.at(name);
  at::Tensor out = at::empty(info.shape, at::TensorOptions().dtype(info.dtype == DType::kF32 ? at::kFloat : at::kLong));
  std::memcpy(out.mutable_data_ptr(), file.bytes(info).data(), file.bytes(info).size());
  return out;
}

struct Case {
  std::string folder;      // deepspeed/z2-w2-bf16
  std::string checkpoint;  // ckpt or universal
  int ranks = 1;
  int stage = 0;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.folder << "/" << c.checkpoint << " on " << c.ranks << " ranks, stage " << c.stage;
}

class PeerRun {
 public:
  explicit PeerRun(const Case& c)
      : case_(c),
        folder_(kFixtures + c.folder),
        expected_(read_json(folder_ + "/expected.json")),
        batches_(formats::SafetensorsFile::open(folder_ + "/batches.safetensors")) {
    world_ = expected_["world"];
    rows_ = world_ * expected_["micro_batch"].get<std::int64_t>();
    accumulation_ = expected_["gradient_accumulation_steps"];
    sequence_ = expected_["sequence"];
    make_job();
  }

  void run() const {
    comm::run_ranks(case_.ranks, [&](comm::Communicator& axis) { run_rank(axis); }, {.timeout_seconds = 60});
  }

 private:
  void make_job() {
    const std::string precision = expected_["precision"];
    config::TrainConfig config;
    config.run.ranks = case_.ranks;
    config.zero.stage = case_.stage;
    config.run.no_decay_1d = expected_["param_groups"].size() == 2;
    config.precision = precision == "fp32"   ? config::Precision::kFp32
                       : precision == "bf16" ? config::Precision::kBf16
                                             : config::Precision::kFp16;
    if (precision == "fp16") {
      config.loss_scale.mode = config::LossScaleConfig::Mode::kDynamic;
      config.loss_scale.initial = 2;  // the checkpoint's is 256
      config.loss_scale.window = 1000;
    }
    const std::int64_t micro = (rows_ + case_.ranks - 1) / case_.ranks;
    config.batch = {micro * accumulation_ * case_.ranks, micro, accumulation_};
    config.gradient_clipping = expected_["clip"];
    config.optimizer.beta2 = 0.98;
    config.optimizer.eps = 1e-8;
    config.optimizer.weight_decay = 0.1;
    config.scheduler.type = "list";
    // The first three updates are done. DeepSpeed's lr_after is the rate of the next one.
    const json& next = expected_["next"];
    const bool is_torch = next[0].contains("lr_used");
    config.scheduler.list = {0, 0, 0};
    for (std::size_t i = 0; i < next.size(); ++i)
      config.scheduler.list.push_back(is_torch ? next[i]["lr_used"][0].get<double>()
                                      : i == 0 ? expected_["lr"][0].get<double>()
                                               : next[i - 1]["lr_after"][0].get<double>());
    job_.model = formats::read_hf_config(folder_);
    plan::ModelSpec spec = plan::model_spec(job_.model);
    const std::set<std::string> frozen = expected_["frozen"].get<std::set<std::string>>();
    for (plan::ParamSpec& param : spec.params) param.frozen = frozen.contains(param.name);
    job_.plan = plan::make_run_plan(config, spec, sequence_, 6);
    job_.random_weights = true;
  }

  // Micro-batch `micro` of a step: rows of all the peer's ranks, cut for ours.
  data::Batch batch(std::int64_t step, std::int64_t micro, int rank) const {
    std::vector<at::Tensor> rows;
    for (std::int64_t r = 0; r < world_; ++r)
      rows.push_back(read_tensor(batches_, concat("step", step, ".micro", micro, ".rank", r)));
    const data::Share share = data::share_of(rows_, case_.ranks, rank);
    const at::Tensor ids = at::cat(rows).narrow(0, share.begin, share.size()).contiguous();
    return {.input_ids = ids, .labels = ids.clone(), .positions = {}, .num_targets = share.size() * (sequence_ - 1)};
  }

  void run_rank(comm::Communicator& axis) const {
    train::Assembly assembly = train::assemble(job_, axis);
    const checkpoint::PeerProgress peer =
        checkpoint::load_peer(folder_ + "/" + case_.checkpoint, *assembly.engine, *assembly.optimizer);
    EXPECT_EQ(peer.progress.step, 3);
    EXPECT_EQ(assembly.optimizer->updates(), 3);
    ASSERT_TRUE(peer.next_lr.has_value());
    EXPECT_DOUBLE_EQ(*peer.next_lr, expected_["lr"][0].get<double>());
    if (job_.plan.loss_scale.dynamic) assembly.loss_scale->restore(peer.progress.loss_scale.value());
    const bool is_fp32 = expected_["precision"] == "fp32";
    for (std::int64_t step = 0; step < 3; ++step) {
      const json& wanted = expected_["next"][static_cast<std::size_t>(step)];
      const train::StepResult result = train::train_step(
          *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale, accumulation_,
          [&](std::int64_t micro) { return batch(3 + step, micro, axis.rank()); }, [] { return train::RankReport{}; });
      EXPECT_NEAR(result.loss, wanted["mean_loss"].get<double>(), is_fp32 ? 1e-5 : 2e-2) << "step " << step;
      if (wanted["grad_norm"].is_number()) {
        EXPECT_NEAR(result.grad_norm, wanted["grad_norm"].get<double>(), is_fp32 ? 1e-4 : 1e-1) << "step " << step;
      }
      if (!is_fp32 && wanted.contains("loss_scale") && wanted["loss_scale"].is_number()) {
        EXPECT_EQ(assembly.loss_scale->scale(), wanted["loss_scale"].get<double>());
      }
    }
    if (is_fp32) expect_weights(*assembly.engine);
  }

  void expect_weights(shard::Engine& engine) const {
    const auto after = formats::SafetensorsFile::open(folder_ + "/after.safetensors");
    for (std::size_t flat = 0; flat < engine.states().size(); ++flat) {
      const at::Tensor whole = engine.gather(flat, shard::Engine::What::kMaster);
      for (const plan::ParamSlot& slot : engine.states()[flat].layout->slots) {
        const plan::ParamSpec& param = engine.plan().model.params[static_cast<std::size_t>(slot.param)];
        const at::Tensor wanted = read_tensor(after, param.name).flatten();
        const double most = (whole.narrow(0, slot.offset, slot.numel) - wanted).abs().max().item<double>();
        // Adam divides by the size of a gradient: where that is near zero a last bit moves an update by its rate.
        EXPECT_LT(most, 1e-3) << param.name;
      }
    }
  }

  Case case_;
  std::string folder_;
  json expected_;
  formats::SafetensorsFile batches_;
  std::int64_t world_ = 0, rows_ = 0, accumulation_ = 1, sequence_ = 0;
  train::TrainJob job_;
};

class Resume : public testing::TestWithParam<Case> {};
TEST_P(Resume, TheNextLossesAreThePeers) { PeerRun(GetParam()).run(); }

INSTANTIATE_TEST_SUITE_P(SomeLayouts, Resume,
                         testing::Values(Case{"deepspeed/z2-w2-gas-decay", "ckpt", 2, 2},
                                         Case{"deepspeed/z2-w2-gas-decay", "universal", 3, 3},
                                         Case{"deepspeed/z3-w2-fp16-subgroups", "ckpt", 2, 1},
                                         Case{"deepspeed/z3-w3-frozen-tied", "ckpt", 2, 3},
                                         Case{"deepspeed/z1-w3-bf16-grad32-tied", "ckpt", 4, 0},
                                         Case{"deepspeed/z0-w2-fp32", "ckpt", 1, 0},
                                         Case{"dcp/fsdp2-w3-flat-optim", "ckpt", 4, 3},
                                         Case{"dcp/accelerate-fsdp2-w2", "ckpt", 2, 2},
                                         Case{"dcp/titan-style-w2", "ckpt", 1, 1}));

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (const char* kind : {"deepspeed", "dcp"}) {
    for (const auto& entry : fs::directory_iterator(kFixtures + kind)) {
      const std::string folder = std::string(kind) + "/" + entry.path().filename().string();
      if (!read_json(entry.path().string() + "/expected.json").value("moments_in_checkpoint", true)) continue;
      for (const char* checkpoint : {"ckpt", "universal"})
        for (int ranks = 1; fs::exists(entry.path() / checkpoint) && ranks <= 4; ++ranks)
          for (int stage = 0; stage <= 3; ++stage) out.push_back({folder, checkpoint, ranks, stage});
    }
  }
  return out;
}

// Every checkpoint on 1 to 4 ranks in stages 0 to 3.
TEST(ResumeSlow, EveryCheckpointInEveryLayout) {
  int runs = 0;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(testing::PrintToString(c));
    PeerRun(c).run();
    ++runs;
  }
  std::cout << runs << " runs\n";
  EXPECT_GE(runs, 20 * 16);
}

}  // namespace
}  // namespace intarsia::interop
