// What devices, hosts and links can do: the hardware half of every estimate of time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::plan {

// Number formats of matrix products.
enum class MatrixType { kFp32, kHalf, kFp8 };  // kHalf: bf16 and fp16
inline constexpr std::size_t kNumMatrixTypes = 3;
MatrixType matrix_type(DType compute_dtype);

// A way for bytes. bandwidth: bytes/s in one direction for one device, as the maker states it; efficiency: what of it
// collectives reach; latency: seconds for each hop.
struct Link {
  std::string name;
  double bandwidth = 0;
  double efficiency = 1;
  double latency = 0;
  double rate() const { return bandwidth * efficiency; }
};

struct DeviceSpec {
  std::string name;
  double memory_bytes = 0;
  std::array<double, kNumMatrixTypes> peak_flops{};         // flops/s, dense; 0: the device does not have it
  std::array<double, kNumMatrixTypes> matrix_efficiency{};  // share of the peak that large products reach in training
  double half_flops = 0;            // a product of this many flops reaches half of matrix_efficiency
  double attention_efficiency = 0;  // share of the 16-bit peak that attention without materialised scores reaches
  double memory_bandwidth = 0;      // bytes/s
  double memory_efficiency = 1;
  // Of this program's own operations, as `intarsia bench` measures them; 0: the ones above stand for them.
  std::array<double, kNumMatrixTypes> pass_bandwidth{};  // bytes/s of operations that are no product
  double update_bandwidth = 0;                           // bytes/s of an optimizer's update
  double operation_seconds = 0;                          // of every operation, whatever its size
  double alone_matrix = 1, alone_memory = 1;  // rates of a rank that has its host for itself / rates of all at once
  double contention = 0;       // share of the shorter of compute and traffic that running both at once costs
  double allocator_slack = 1;  // bytes reserved / bytes in use
  double base_bytes = 0;       // of a process beside its tensors: code, scratch, driver
};

// A number of equal hosts. Units: bytes, bytes/s, seconds, flops/s.
struct ClusterSpec {
  std::string name;
  std::string calibration;  // in words: what the efficiencies were fitted to
  DeviceSpec device;
  int devices_per_host = 1;
  Link intra;      // between devices of a host
  Link inter;      // between hosts
  Link host_link;  // between a device and its host's memory
  double host_memory_bytes = 0;
  double host_memory_bandwidth = 0;
  double nvme_read = 0, nvme_write = 0;   // bytes/s of a host; 0: none
  double hours_between_failures = 50000;  // of one device with its share of the host
};

// Ready ones by name: "a100-80", "a100-40", "h100", "h100-96-500w", "h200", "v100-dgx2", "cpu".
const std::vector<ClusterSpec>& cluster_presets();

// A ready one's name, or a JSON file that `intarsia bench --write-cluster` or cluster_json() wrote.
// Errors: kUsage with the names; kIo, kFormat, kConfig with file and key.
ClusterSpec find_cluster(const std::string& name_or_file);

// JSON of a cluster, every key with its unit in its name.
std::string cluster_json(const ClusterSpec& cluster);

}  // namespace intarsia::plan
