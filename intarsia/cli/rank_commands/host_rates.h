// What this host does, measured with this program's own operations: the rates of `intarsia bench`.
#pragma once

#include <string>
#include <vector>

#include "intarsia/plan/time/cluster.h"
#include "intarsia/plan/time/replay_time.h"

namespace intarsia::cli {

// A micro-step of a small model: what it does by plan's count, and how long it took the slowest rank.
struct WorkSample {
  std::string name;
  plan::WorkSum work;
  double seconds = 0;
};

// A collective of all ranks over shared memory.
struct CollectiveRate {
  std::string name;
  double bytes = 0;  // of the tensor that holds all ranks' pieces
  double seconds = 0;
};

// Of ranks that do the same at once, one thread each, as in training: the slowest one's.
struct HostRates {
  int ranks = 1;
  double matrix[plan::kNumMatrixTypes] = {};  // flops/s of large products: fp32, bf16, none
  double half_flops = 0;                      // a product of this many flops reaches half of the rate
  double attention = 0;                       // flops/s, fp32
  double memory = 0;                          // bytes/s of an addition
  double update = 0;                          // bytes/s of AdamW's update, by plan's count
  double barrier = 0;                         // seconds
  double disk_write = 0, disk_read = 0;       // bytes/s of a file in `disk_path`, written through to the disk
  std::string disk_path;
  std::vector<CollectiveRate> collectives;  // empty with one rank
  std::vector<WorkSample> samples[2];       // fp32, bf16
};

// Takes about 20 s. `disk_path`: a folder to write a file of 64 MiB to; empty: the disk is left out.
// Errors: kIo.
HostRates measure_rates(int ranks, const std::string& disk_path);

// What the samples' times say of a rank: rates, as factors of what single operations reach, that come nearest.
struct FittedRates {
  double matrix = 0, attention = 0;  // flops/s
  double pass = 0;                   // bytes/s
  double operation = 0;              // seconds
};
// Least squares of relative errors, nothing negative; `matrix` and `attention` are drawn to what was measured alone.
FittedRates fit(const std::vector<WorkSample>& samples, double matrix, double half_flops, double attention);

// The cluster that plan takes: `all` ranks at once, and one `alone` on the host.
plan::ClusterSpec cluster_of(const HostRates& all, const HostRates& alone);

// For a terminal.
std::string rates_text(const HostRates& rates);

}  // namespace intarsia::cli
