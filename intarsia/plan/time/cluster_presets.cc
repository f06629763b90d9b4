// Makers' figures: peak rates, memory and links from NVIDIA's data sheets of V100, A100, H100 and H200 and of the DGX
// systems. Efficiencies: fitted, see each `calibration` and docs/plan.md.
#include "intarsia/plan/time/cluster.h"

namespace intarsia::plan {
namespace {

constexpr double kGB = 1e9, kTera = 1e12, kGiB = 1024.0 * 1024 * 1024, kMicro = 1e-6;

ClusterSpec a100(const char* name, double memory, double bandwidth) {
  ClusterSpec c;
  c.name = name;
  c.calibration =
      "matrix_efficiency, half_flops and contention fitted to korthikanti-22b-time, korthikanti-530b-time and "
      "mpt-70b-scaling-a100 of tests/fixtures/plan/validation_rows.csv; all other rows of this device are predictions";
  c.device = {.name = "A100 SXM",
              .memory_bytes = memory,
              .peak_flops = {19.5 * kTera, 312 * kTera, 0},
              .matrix_efficiency = {0.85, 0.76, 0},
              .half_flops = 4e9,
              .attention_efficiency = 0.55,
              .memory_bandwidth = bandwidth,
              .memory_efficiency = 0.8,
              .contention = 0.7,
              .allocator_slack = 1.2,
              .base_bytes = 1.0 * kGiB};
  c.devices_per_host = 8;
  c.intra = {.name = "NVLink 3", .bandwidth = 300 * kGB, .efficiency = 0.75, .latency = 8 * kMicro};
  c.inter = {.name = "InfiniBand HDR 200 Gb/s", .bandwidth = 25 * kGB, .efficiency = 0.85, .latency = 15 * kMicro};
  c.host_link = {.name = "PCIe 4 x16", .bandwidth = 32 * kGB, .efficiency = 0.8, .latency = 10 * kMicro};
  c.host_memory_bytes = 1024 * kGiB;
  c.host_memory_bandwidth = 300 * kGB;
  c.nvme_read = 25 * kGB;
  c.nvme_write = 12 * kGB;
  return c;
}

ClusterSpec h100(const char* name, const char* device, double memory, double bandwidth) {
  ClusterSpec c = a100(name, memory, bandwidth);
  c.calibration =
      "efficiencies of a100-80, half_flops three times its (the tensor cores are three times as fast); fp8 as the "
      "bf16 one times 0.709 / 0.803, the ratio of the best published products. No row is used";
  c.device.name = device;
  c.device.peak_flops = {67 * kTera, 989 * kTera, 1979 * kTera};
  c.device.matrix_efficiency = {0.85, 0.76, 0.67};
  c.device.half_flops = 12e9;
  c.intra = {.name = "NVLink 4", .bandwidth = 450 * kGB, .efficiency = 0.75, .latency = 8 * kMicro};
  c.inter = {.name = "InfiniBand NDR 400 Gb/s", .bandwidth = 50 * kGB, .efficiency = 0.8, .latency = 15 * kMicro};
  c.host_link = {.name = "PCIe 5 x16", .bandwidth = 64 * kGB, .efficiency = 0.8, .latency = 10 * kMicro};
  c.host_memory_bytes = 2048 * kGiB;
  c.host_memory_bandwidth = 500 * kGB;
  return c;
}

ClusterSpec h100_500w() {
  ClusterSpec c = h100("h100-96-500w", "H100 96 GB, 500 W", 95.04 * kGiB, 2400 * kGB);
  c.calibration =
      "matrix_efficiency (bf16 and fp8) and attention_efficiency fitted to titan-8b-8gpu and titan-405b-schedules: a "
      "limit of 500 W lowers the clock, so the efficiencies of h100 do not hold";
  c.device.matrix_efficiency = {0.6, 0.48, 0.275};
  c.device.attention_efficiency = 0.4;
  return c;
}

ClusterSpec v100() {
  ClusterSpec c = a100("v100-dgx2", 32 * kGB, 900 * kGB);
  c.calibration = "efficiencies of a100-80; no row of this device has a time";
  c.device.name = "V100 32 GB";
  c.device.peak_flops = {15.7 * kTera, 125 * kTera, 0};
  c.device.matrix_efficiency = {0.85, 0.6, 0};
  c.device.half_flops = 2e9;
  c.devices_per_host = 16;
  c.intra = {.name = "NVLink 2 with NVSwitch", .bandwidth = 150 * kGB, .efficiency = 0.75, .latency = 8 * kMicro};
  c.inter = {.name = "InfiniBand EDR 100 Gb/s (8 a host)",
             .bandwidth = 6.25 * kGB,
             .efficiency = 0.85,
             .latency = 15 * kMicro};
  c.host_link = {
      .name = "PCIe 3 x16, two devices each", .bandwidth = 16 * kGB, .efficiency = 0.75, .latency = 10 * kMicro};
  c.host_memory_bytes = 1536 * kGiB;
  c.host_memory_bandwidth = 117 * kGB;  // what cpu-adam-10b of the rows implies
  c.nvme_read = 25 * kGB;
  return c;
}

// Rates of two cores of a virtual machine with AVX2, one rank each; a host of one's own is measured by bench.
ClusterSpec cpu() {
  ClusterSpec c;
  c.name = "cpu";
  c.calibration = "floors of a small virtual machine; `intarsia bench --write-cluster` measures this host";
  c.device = {.name = "CPU core",
              .memory_bytes = 8 * kGiB,
              .peak_flops = {50e9, 50e9, 0},
              .matrix_efficiency = {0.8, 0.2, 0},
              .half_flops = 2e6,
              .attention_efficiency = 0.4,
              .memory_bandwidth = 10 * kGB,
              .memory_efficiency = 0.8,
              .contention = 1,
              .allocator_slack = 1,
              .base_bytes = 0.2 * kGiB};
  c.devices_per_host = 2;
  c.intra = {.name = "shared memory", .bandwidth = 5 * kGB, .efficiency = 1, .latency = 20 * kMicro};
  c.inter = {.name = "Ethernet 10 Gb/s", .bandwidth = 1.25 * kGB, .efficiency = 0.8, .latency = 100 * kMicro};
  c.host_link = {.name = "memory", .bandwidth = 10 * kGB, .efficiency = 1, .latency = 0};
  c.host_memory_bytes = 16 * kGiB;
  c.host_memory_bandwidth = 10 * kGB;
  c.nvme_read = 0.94 * kGB;
  c.nvme_write = 0.44 * kGB;
  return c;
}

}  // namespace

const std::vector<ClusterSpec>& cluster_presets() {
  static const std::vector<ClusterSpec> kPresets = {a100("a100-80", 80 * kGB, 2039 * kGB),
                                                    a100("a100-40", 40 * kGB, 1555 * kGB),
                                                    h100("h100", "H100 SXM", 80 * kGB, 3350 * kGB),
                                                    h100_500w(),
                                                    h100("h200", "H200 SXM", 141 * kGB, 4800 * kGB),
                                                    v100(),
                                                    cpu()};
  return kPresets;
}

}  // namespace intarsia::plan
