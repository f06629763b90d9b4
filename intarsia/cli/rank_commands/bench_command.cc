// intarsia bench: the rates of this host, for intarsia plan.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>

#include "intarsia/base/text.h"
#include "intarsia/cli/rank_commands/inference_arguments.h"
#include "intarsia/cli/rank_commands/rank_commands.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/io/file.h"
#include "intarsia/plan/memory/limits.h"
#include "intarsia/plan/time/cluster.h"

namespace intarsia::cli {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Median seconds of a call, after one to warm up, for about half a second.
double seconds_of(const std::function<void()>& call) {
  call();
  std::vector<double> times;
  const double end = now() + 0.5;
  while (times.size() < 3 || (now() < end && times.size() < 1000)) {
    const double begin = now();
    call();
    times.push_back(now() - begin);
  }
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

// What one rank measures while the others do the same: they share the host's memory and cores in training, too.
struct Rates {
  double matrix[2] = {0, 0};  // flops/s, fp32 and bf16
  double half_flops = 0;
  double attention = 0;  // flops/s, fp32
  double memory = 0;     // bytes/s
  double gather = 0, latency = 0;
};

double product_seconds(std::int64_t size, at::ScalarType type) {
  const at::Tensor a = at::ones({size, size}, at::TensorOptions().dtype(type));
  return seconds_of([&] { at::mm(a, a); });
}

Rates measure(comm::Communicator& axis) {
  const at::NoGradGuard no_grad;
  constexpr std::int64_t kLarge = 768, kSmall = 64;
  const auto flops = [](std::int64_t size) { return 2.0 * std::pow(static_cast<double>(size), 3); };
  Rates out;
  axis.barrier({"", "bench"});
  out.matrix[0] = flops(kLarge) / product_seconds(kLarge, at::kFloat);
  out.matrix[1] = flops(kLarge) / product_seconds(kLarge, at::kBFloat16);
  out.half_flops = std::max(0.0, product_seconds(kSmall, at::kFloat) * out.matrix[0] - flops(kSmall));
  axis.barrier({"", "bench"});
  const at::Tensor q = at::ones({2, 8, 256, 64});
  out.attention = 2.0 * static_cast<double>(q.numel()) * 256 /
                  seconds_of([&] { at::scaled_dot_product_attention(q, q, q, {}, 0.0, true); });
  axis.barrier({"", "bench"});
  const at::Tensor big = at::ones({4 << 20});
  at::Tensor sum = at::empty_like(big);
  out.memory = 3.0 * static_cast<double>(big.nbytes()) / seconds_of([&] { at::add_out(sum, big, big); });
  if (axis.size() == 1) return out;
  // All ranks must make equally many calls.
  const at::Tensor piece = at::ones({(4 << 20) / axis.size()});
  at::Tensor whole = at::empty({piece.numel() * axis.size()});
  constexpr int kTimes = 8;
  for (int i = 0; i < 2; ++i) axis.reduce_scatter(piece, whole, {"", "bench"})->wait();
  double begin = now();
  for (int i = 0; i < kTimes; ++i) axis.reduce_scatter(piece, whole, {"", "bench"})->wait();
  const double ranks = axis.size();
  out.gather = (ranks - 1) / ranks * static_cast<double>(whole.nbytes()) / ((now() - begin) / kTimes);
  begin = now();
  for (int i = 0; i < 100 * kTimes; ++i) axis.barrier({"", "bench"});
  out.latency = (now() - begin) / (100 * kTimes);
  return out;
}

plan::ClusterSpec cluster_of(const std::vector<Rates>& all) {
  // The slowest rank sets the pace.
  const auto least = [&](auto of) { return std::ranges::min(all, {}, of).*of; };
  const auto least_matrix = [&](int type) {
    double rate = all[0].matrix[type];
    for (const Rates& rates : all) rate = std::min(rate, rates.matrix[type]);
    return rate;
  };
  plan::ClusterSpec cluster = plan::find_cluster("cpu");
  cluster.name = "this host";
  cluster.calibration = concat("measured by intarsia bench on ", all.size(), " ranks at once, one thread each");
  plan::DeviceSpec& device = cluster.device;
  device.name = "one rank";
  device.peak_flops = {least_matrix(0), least_matrix(1), 0};
  device.matrix_efficiency = {1, 1, 0};
  device.half_flops = least(&Rates::half_flops);
  device.attention_efficiency = least(&Rates::attention) / device.peak_flops[0];
  device.memory_bandwidth = least(&Rates::memory);
  device.memory_efficiency = 1;
  device.base_bytes = static_cast<double>(plan::kRankBaseBytes);
  cluster.devices_per_host = static_cast<int>(all.size());
  const double host = static_cast<double>(plan::read_memory_limit().bytes);
  device.memory_bytes = host / static_cast<double>(all.size());
  cluster.host_memory_bytes = host;
  cluster.host_memory_bandwidth = device.memory_bandwidth * static_cast<double>(all.size());
  if (all.size() > 1) {
    cluster.intra.bandwidth = least(&Rates::gather);
    cluster.intra.latency = least(&Rates::latency);
  }
  return cluster;
}

}  // namespace

int bench_command(int argc, char** argv) {
  CLI::App app("Measures this host's rates, for intarsia plan --cluster FILE.", "intarsia bench");
  std::string file;
  int ranks = 1;
  app.add_option("--write-cluster", file, "write a cluster's JSON to this file; without it, print it");
  app.add_option("--ranks", ranks, "ranks that run at once, as they will in training [1]");
  if (parse_arguments(app, argc, argv)) return 0;
  INTARSIA_CHECK(kUsage, ranks >= 1 && ranks <= 256, "--ranks ", ranks, "; allowed: 1 to 256");
  std::vector<Rates> all(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& axis) { all[static_cast<std::size_t>(axis.rank())] = measure(axis); },
                  {.force_copy = false, .timeout_seconds = 300});
  const std::string json = plan::cluster_json(cluster_of(all));
  if (file.empty()) {
    std::cout << json << std::flush;
  } else {
    io::write_file_atomic(file, json);
    std::cout << "written: " << file << "; use it with intarsia plan --cluster " << file << "\n";
  }
  return 0;
}

}  // namespace intarsia::cli
