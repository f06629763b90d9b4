#include "intarsia/cli/rank_commands/host_rates.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <sstream>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/io/file.h"
#include "intarsia/models/attention.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/memory/limits.h"
#include "intarsia/train/assemble.h"

namespace intarsia::cli {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Median seconds of a call, after one to warm up, for about `budget` seconds.
double seconds_of(const std::function<void()>& call, double budget = 0.4) {
  call();
  std::vector<double> times;
  const double end = now() + budget;
  while (times.size() < 3 || (now() < end && times.size() < 1000)) {
    const double begin = now();
    call();
    times.push_back(now() - begin);
  }
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

double product_seconds(std::int64_t size, at::ScalarType type) {
  const at::Tensor a = at::ones({size, size}, at::TensorOptions().dtype(type));
  return seconds_of([&] { at::mm(a, a); });
}

// What one rank finds.
struct Found {
  HostRates rates;
};

void measure_operations(comm::Communicator& axis, HostRates& out) {
  const at::NoGradGuard no_grad;
  constexpr std::int64_t kLarge = 768, kSmall = 64;
  const auto flops = [](std::int64_t size) { return 2.0 * std::pow(static_cast<double>(size), 3); };
  axis.barrier({"", "bench"});
  out.matrix[0] = flops(kLarge) / product_seconds(kLarge, at::kFloat);
  out.matrix[1] = flops(kLarge) / product_seconds(kLarge, at::kBFloat16);
  out.half_flops = std::max(0.0, product_seconds(kSmall, at::kFloat) * out.matrix[0] - flops(kSmall));
  axis.barrier({"", "bench"});
  const at::Tensor q = at::ones({2, 8, 256, 64});
  out.attention = 2.0 * static_cast<double>(q.numel()) * 256 / seconds_of([&] { models::attend(q, q, q, {}); });
  axis.barrier({"", "bench"});
  const at::Tensor big = at::ones({4 << 20});
  at::Tensor sum = at::empty_like(big);
  out.memory = 3.0 * static_cast<double>(big.nbytes()) / seconds_of([&] { at::add_out(sum, big, big); });
}

void measure_collectives(comm::Communicator& axis, HostRates& out) {
  if (axis.size() == 1) return;
  const at::NoGradGuard no_grad;
  for (const std::int64_t bytes : {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{16} << 20}) {
    const std::int64_t numel = bytes / 4 / axis.size();
    const at::Tensor piece = at::ones({numel});
    const at::Tensor whole = at::empty({numel * axis.size()});
    const int times = bytes > (1 << 20) ? 8 : 50;  // all ranks must make equally many calls
    const auto timed = [&](const char* name, const std::function<void()>& call) {
      for (int i = 0; i < 2; ++i) call();
      axis.barrier({"", "bench"});
      const double begin = now();
      for (int i = 0; i < times; ++i) call();
      out.collectives.push_back({name, static_cast<double>(whole.nbytes()), (now() - begin) / times});
    };
    timed("reduce_scatter", [&] { axis.reduce_scatter(piece, whole, {"", "bench"})->wait(); });
    timed("all_gather", [&] { axis.all_gather(whole, piece, {"", "bench"})->wait(); });
    timed("all_reduce", [&] { axis.all_reduce(whole, comm::ReduceOp::kSum, {"", "bench"})->wait(); });
  }
  const double begin = now();
  for (int i = 0; i < 800; ++i) axis.barrier({"", "bench"});
  out.barrier = (now() - begin) / 800;
}

struct SmallModel {
  const char* name;
  std::int64_t hidden, ffn, layers, heads, vocab, batch, length;
};
// Each is large in another kind of work: products, attention, logits, the number of operations.
constexpr SmallModel kSmallModels[] = {{"products", 512, 1408, 1, 8, 512, 4, 128},
                                       {"blocks", 256, 704, 2, 4, 512, 2, 128},
                                       {"attention", 256, 704, 2, 4, 512, 1, 512},
                                       {"logits", 256, 704, 1, 4, 8192, 2, 128},
                                       {"small", 128, 352, 2, 4, 512, 1, 64}};

train::TrainJob job_of(const SmallModel& small, config::Precision precision, int ranks) {
  train::TrainJob job;
  job.model = plan::preset("llama-34m").value();
  job.model.hidden_size = small.hidden;
  job.model.intermediate_size = small.ffn;
  job.model.num_hidden_layers = small.layers;
  job.model.num_attention_heads = job.model.num_key_value_heads = small.heads;
  job.model.head_dim = small.hidden / small.heads;
  job.model.vocab_size = small.vocab;
  config::TrainConfig config;
  config.run.ranks = ranks;
  config.zero.stage = 1;  // nothing moves before the window's end
  config.precision = precision;
  config.batch.micro_batch_size = small.batch;
  job.random_weights = true;
  job.plan = plan::make_run_plan(config, job.model, small.length, 1);
  return job;
}

// Forward and backward as in training, without exchange; the update where asked.
void measure_model(comm::Communicator& axis, const SmallModel& small, config::Precision precision, Found& found) {
  const train::TrainJob job = job_of(small, precision, axis.size());
  const train::Assembly made = train::assemble(job, axis);
  const at::Tensor ids = at::ones({small.batch, small.length}, at::kLong);
  axis.barrier({"", "bench"});
  const double seconds = seconds_of([&] {
    made.engine->start_window();
    made.engine->backward(made.model->loss_sum(made.engine->parameters(), made.engine.get(), ids, at::Tensor(), ids));
  });
  const plan::StepReplay replay = plan::replay_step(job.plan, job.model);
  const bool half = precision == config::Precision::kBf16;
  found.rates.samples[half ? 1 : 0].push_back({small.name, plan::sum_work(replay, job.plan), seconds});
  if (half || std::string_view(small.name) != "products") return;
  axis.barrier({"", "bench"});
  const at::NoGradGuard no_grad;
  made.engine->finish_window();
  const double update = seconds_of([&] { made.optimizer->step(1e-4, 1); });
  for (const plan::Action& action : replay.actions)
    if (action.kind == plan::ActionKind::kUpdate) found.rates.update = static_cast<double>(action.bytes) / update;
}

void measure_disk(const std::string& folder, HostRates& out) {
  const std::string path = (std::filesystem::path(folder) / "intarsia-bench.tmp").string();
  const std::vector<std::byte> bytes(64 << 20, std::byte{1});
  const double begin = now();
  io::write_file_atomic(path, bytes);
  const double written = now();
  out.disk_path = folder;
  out.disk_write = static_cast<double>(bytes.size()) / (written - begin);
  {
    const io::Fd fd = io::open_read(path);
    // Its pages are clean now: the kernel forgets them, so that the disk is read.
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    std::vector<std::byte> back(bytes.size());
    const double start = now();
    io::read_exact_at(fd, path, 0, back);
    out.disk_read = static_cast<double>(back.size()) / (now() - start);
  }
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

// The slowest of what the ranks found, each figure for itself.
HostRates slowest(std::vector<Found>& all) {
  HostRates out = std::move(all[0].rates);
  out.ranks = static_cast<int>(all.size());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const HostRates& other = all[rank].rates;
    for (double HostRates::*rate : {&HostRates::attention, &HostRates::memory, &HostRates::update})
      out.*rate = std::min(out.*rate, other.*rate);
    for (std::size_t type = 0; type < plan::kNumMatrixTypes; ++type)
      out.matrix[type] = std::min(out.matrix[type], other.matrix[type]);
    out.half_flops = std::max(out.half_flops, other.half_flops);
    out.barrier = std::max(out.barrier, other.barrier);
    for (std::size_t i = 0; i < out.collectives.size(); ++i)
      out.collectives[i].seconds = std::max(out.collectives[i].seconds, other.collectives[i].seconds);
    for (std::size_t type = 0; type < 2; ++type)
      for (std::size_t i = 0; i < out.samples[type].size(); ++i)
        out.samples[type][i].seconds = std::max(out.samples[type][i].seconds, other.samples[type][i].seconds);
  }
  return out;
}

}  // namespace

HostRates measure_rates(int ranks, const std::string& disk_path) {
  std::vector<Found> all(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks,
                  [&](comm::Communicator& axis) {
                    Found& found = all[static_cast<std::size_t>(axis.rank())];
                    measure_operations(axis, found.rates);
                    measure_collectives(axis, found.rates);
                    for (const config::Precision precision : {config::Precision::kFp32, config::Precision::kBf16})
                      for (const SmallModel& small : kSmallModels) measure_model(axis, small, precision, found);
                  },
                  {.force_copy = false, .timeout_seconds = 300});
  HostRates out = slowest(all);
  if (!disk_path.empty()) measure_disk(disk_path, out);
  return out;
}

FittedRates fit(const std::vector<WorkSample>& samples, double matrix, double half_flops, double attention) {
  // Unknowns: seconds of a flop of products, of one of attention, of a byte, of an operation. Coordinate descent.
  constexpr std::size_t kUnknowns = 4;
  using Row = std::array<double, kUnknowns>;
  struct Equation {
    Row row;
    double weight;  // row . x should be 1
  };
  std::vector<Equation> equations;
  for (const WorkSample& sample : samples) {
    const plan::WorkSum& work = sample.work;
    Row row{work.matrix_flops + work.products * half_flops, work.attention_flops, work.pass_bytes, work.operations};
    for (double& term : row) term /= sample.seconds;
    equations.push_back({row, 1});
  }
  equations.push_back({{matrix, 0, 0, 0}, 0.2});
  equations.push_back({{0, attention, 0, 0}, 0.1});
  Row x{1 / matrix, 1 / attention, 0, 0};
  for (int round = 0; round < 2000; ++round)
    for (std::size_t i = 0; i < kUnknowns; ++i) {
      double above = 0, below = 0;
      for (const Equation& equation : equations) {
        double rest = 1;
        for (std::size_t j = 0; j < kUnknowns; ++j)
          if (j != i) rest -= equation.row[j] * x[j];
        above += equation.weight * equation.row[i] * rest;
        below += equation.weight * equation.row[i] * equation.row[i];
      }
      x[i] = std::max(0.0, above / below);
    }
  const auto rate = [](double seconds, double otherwise) { return seconds > 0 ? 1 / seconds : otherwise; };
  return {rate(x[0], matrix), rate(x[1], attention), rate(x[2], 0), x[3]};
}

std::string rates_text(const HostRates& rates) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  const auto row = [&](const std::string& name) -> std::ostream& {
    return out << "  " << std::left << std::setw(34) << name << std::right << std::setw(10);
  };
  out << "This host, a rank of " << rates.ranks << (rates.ranks > 1 ? " at once" : "") << ", one thread each\n";
  row("products fp32, 768 x 768") << rates.matrix[0] / 1e9 << " GFLOP/s\n";
  row("products bf16, 768 x 768") << rates.matrix[1] / 1e9 << " GFLOP/s\n";
  row("half of that rate at") << rates.half_flops / 1e6 << " MFLOP\n";
  row("attention fp32, 256 x 64") << rates.attention / 1e9 << " GFLOP/s\n";
  row("memory, an addition") << rates.memory / 1e9 << " GB/s\n";
  row("AdamW's update, by plan's count") << rates.update / 1e9 << " GB/s\n";
  for (int type = 0; type < 2; ++type) {
    const FittedRates fitted = fit(rates.samples[type], rates.matrix[type], rates.half_flops, rates.attention);
    const std::string of = type == 0 ? " in fp32 steps" : " in bf16 steps";
    row("products" + of) << fitted.matrix / 1e9 << " GFLOP/s (fitted)\n";
    row("other operations" + of) << fitted.pass / 1e9 << " GB/s (fitted), " << 1e6 * fitted.operation
                                 << " us an operation\n";
  }
  if (rates.ranks > 1) row("barrier") << 1e6 * rates.barrier << " us\n";
  for (const CollectiveRate& rate : rates.collectives)
    row(concat(rate.name, ", ", static_cast<std::int64_t>(rate.bytes) / 1024, " KiB"))
        << rate.bytes / rate.seconds / 1e9 << " GB/s (" << 1e6 * rate.seconds << " us)\n";
  if (rates.disk_write > 0) {
    row("disk, written through") << rates.disk_write / 1e9 << " GB/s (" << rates.disk_path << ")\n";
    row("disk, read") << rates.disk_read / 1e9 << " GB/s\n";
  }
  return out.str();
}

plan::ClusterSpec cluster_of(const HostRates& all, const HostRates& alone) {
  plan::ClusterSpec cluster = plan::find_cluster("cpu");
  cluster.name = "this host";
  cluster.calibration = concat("measured by intarsia bench: single operations and micro-steps of small models on ",
                               all.ranks, all.ranks > 1 ? " ranks at once" : " rank", ", one thread each");
  plan::DeviceSpec& device = cluster.device;
  device.name = "one rank";
  device.matrix_efficiency = {1, 1, 0};
  device.half_flops = all.half_flops;
  const FittedRates wide = fit(all.samples[0], all.matrix[0], all.half_flops, all.attention);
  const FittedRates half = fit(all.samples[1], all.matrix[1], all.half_flops, all.attention);
  device.peak_flops = {wide.matrix, half.matrix, 0};
  device.attention_efficiency = wide.attention / wide.matrix;
  device.pass_bandwidth = {wide.pass, half.pass, 0};
  device.operation_seconds = wide.operation;
  device.memory_bandwidth = all.memory;
  device.memory_efficiency = 1;
  device.update_bandwidth = all.update;
  const FittedRates single = fit(alone.samples[0], alone.matrix[0], alone.half_flops, alone.attention);
  device.alone_matrix = single.matrix / wide.matrix;
  device.alone_memory = single.pass > 0 && wide.pass > 0 ? single.pass / wide.pass : alone.memory / all.memory;
  device.base_bytes = static_cast<double>(plan::kRankBaseBytes + plan::kHostBaseBytes / all.ranks);
  cluster.devices_per_host = all.ranks;
  const double host = static_cast<double>(plan::read_memory_limit().bytes);
  device.memory_bytes = host / all.ranks;
  cluster.host_memory_bytes = host;
  cluster.host_memory_bandwidth = all.memory * all.ranks;
  if (all.disk_write > 0) cluster.nvme_write = all.disk_write;
  if (all.disk_read > 0) cluster.nvme_read = all.disk_read;
  for (const CollectiveRate& rate : all.collectives)  // the last reduce_scatter is the largest
    if (rate.name == "reduce_scatter") cluster.intra.bandwidth = (1 - 1.0 / all.ranks) * rate.bytes / rate.seconds;
  if (all.barrier > 0) cluster.intra.latency = all.barrier;
  return cluster;
}

}  // namespace intarsia::cli
