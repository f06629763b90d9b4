// A model of tests/fixtures/hf with its batches and reference curves, and runs of it in any layout.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "intarsia/comm/run_ranks.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/tensor/dtype_map.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/step.h"

namespace intarsia::parity {

inline std::string fixture(const std::string& path) { return "tests/fixtures/hf/" + path; }

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// A tensor of a safetensors file, copied; integers as int64.
inline at::Tensor read_tensor(const formats::SafetensorsFile& file, const std::string& name) {
  const formats::TensorInfo* info = file.find(name);
  if (info == nullptr) throw std::runtime_error("no tensor " + name);
  const auto bytes = file.bytes(*info);
  at::Tensor tensor = at::empty(info->shape, at::TensorOptions().dtype(tensor::scalar_type(info->dtype)));
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return at::isIntegralType(tensor.scalar_type(), false) ? tensor.to(at::kLong) : tensor;
}

// Rows of two [N, S] tensors as a data set.
class TensorDataset final : public data::Dataset {
 public:
  TensorDataset(at::Tensor ids, at::Tensor labels) : ids_(ids.contiguous()), labels_(labels.contiguous()) {}
  std::int64_t num_samples() const override { return ids_.size(0); }
  std::int64_t seq_len() const override { return ids_.size(1); }
  void fill(std::int64_t index, std::int64_t* ids, std::int64_t* labels) const override {
    const std::int64_t length = seq_len();
    std::memcpy(ids, ids_.const_data_ptr<std::int64_t>() + index * length, static_cast<std::size_t>(length) * 8);
    std::memcpy(labels, labels_.const_data_ptr<std::int64_t>() + index * length, static_cast<std::size_t>(length) * 8);
  }
  const data::DataSummary& summary() const override { return summary_; }

 private:
  at::Tensor ids_, labels_;
  data::DataSummary summary_;
};

struct Layout {
  std::string model;  // "llama-gqa"
  std::string variant = "plain";
  int ranks = 1;
  int stage = 0;
  bool force_copy = false;
  bool recompute = false;
  DType dtype = DType::kF32;
  std::int64_t steps = 20;
  DeviceKind device = DeviceKind::kCpu;
};

inline void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.model << " " << layout.variant << " ranks " << layout.ranks << " stage " << layout.stage
       << (layout.force_copy ? " copied" : " mapped") << (layout.recompute ? " recomputed" : "");
}

// The job that a variant of curves.json describes.
inline train::TrainJob make_job(const Layout& layout) {
  const nlohmann::json curves = read_json(fixture(layout.model + "/curves.json"));
  const auto batches = formats::SafetensorsFile::open(fixture(layout.model + "/batches.safetensors"));
  at::Tensor ids = read_tensor(batches, "input_ids"), labels = read_tensor(batches, "labels");
  const bool all = layout.variant == "all";
  const bool accumulate = all || layout.variant == "accumulate";
  const std::int64_t micro_steps = accumulate ? 4 : 1, batch = ids.size(2), length = ids.size(3);

  train::TrainJob job;
  const plan::ModelSource source = plan::find_model(fixture(layout.model + "/model"));
  job.model = source.config;
  job.model_directory = source.directory;
  ids = ids.narrow(1, 0, micro_steps).reshape({-1, length});
  labels = labels.narrow(1, 0, micro_steps).reshape({-1, length});
  job.dataset = std::make_shared<TensorDataset>(ids, labels);

  config::TrainConfig config;
  config.run.ranks = layout.ranks;
  config.zero.stage = layout.stage;
  config.run.force_copy = layout.force_copy;
  config.run.recompute = layout.recompute ? config::Recompute::kFull : config::Recompute::kNone;
  config.run.no_decay_1d = all || layout.variant == "nodecay1d";
  config.precision = layout.dtype == DType::kF32 ? config::Precision::kFp32 : config::Precision::kBf16;
  config.batch = {batch * micro_steps, batch / layout.ranks, micro_steps};
  config.gradient_clipping = all || layout.variant == "clip" ? 1.0 : 0.0;
  config.optimizer.beta2 = 0.95;
  config.optimizer.weight_decay = 0.1;
  config.scheduler.type = "list";
  for (const auto& lr : curves["curves"][layout.variant]["lr"]) config.scheduler.list.push_back(lr.get<double>());
  job.plan = plan::make_run_plan(config, job.model, length, layout.steps);
  job.plan.device = layout.device;
  job.sampler = {.num_samples = ids.size(0),
                 .shuffle = false,
                 .micro_batch = config.batch.micro_batch_size,
                 .accumulation = micro_steps,
                 .ranks = layout.ranks};
  return job;
}

struct Curve {
  std::vector<train::StepResult> steps;
  std::vector<at::Tensor> weights;  // by parameter, fp32, after the last step
};

inline std::vector<at::Tensor> gather_parameters(shard::Engine& engine, shard::Engine::What what) {
  std::vector<at::Tensor> tensors(engine.plan().model.params.size());
  for (std::size_t flat = 0; flat < engine.states().size(); ++flat) {
    const at::Tensor whole = engine.gather(flat, what);
    for (const plan::ParamSlot& slot : engine.states()[flat].layout->slots)
      tensors[static_cast<std::size_t>(slot.param)] =
          whole.narrow(0, slot.offset, slot.numel)
              .view(engine.plan().model.params[static_cast<std::size_t>(slot.param)].shape)
              .clone();
  }
  return tensors;
}

// Runs the job's steps on this rank.
inline Curve run_curve(const train::TrainJob& job, comm::Communicator& axis) {
  train::Assembly assembly = train::assemble(job, axis);
  const data::Sampler sampler(job.sampler);
  Curve curve;
  std::int64_t position = 0;
  for (std::int64_t step = 0; step < job.plan.steps; ++step) {
    const data::Window window = sampler.next_window(position).value();
    position = window.end;
    curve.steps.push_back(train::train_step(
        *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale, sampler.micro_steps(window),
        [&](std::int64_t micro) { return data::make_batch(*job.dataset, sampler, window, axis.rank(), micro); },
        [] { return train::RankReport{}; }));
  }
  curve.weights = gather_parameters(*assembly.engine, shard::Engine::What::kMaster);
  return curve;
}

// Runs a layout on ranks that are threads; the curve of rank 0, after checking that all ranks report the same.
inline Curve run_layout(const Layout& layout) {
  const train::TrainJob job = make_job(layout);
  std::vector<Curve> curves(static_cast<std::size_t>(layout.ranks));
  comm::run_ranks(
      layout.ranks,
      [&](comm::Communicator& axis) { curves[static_cast<std::size_t>(axis.rank())] = run_curve(job, axis); },
      {.force_copy = layout.force_copy, .device = layout.device, .timeout_seconds = 60});
  for (const Curve& curve : curves)
    for (std::size_t step = 0; step < curve.steps.size(); ++step) {
      EXPECT_EQ(curve.steps[step].loss, curves[0].steps[step].loss);
      EXPECT_EQ(curve.steps[step].grad_norm, curves[0].steps[step].grad_norm);
    }
  return curves[0];
}

}  // namespace intarsia::parity
