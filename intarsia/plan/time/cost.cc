#include "intarsia/plan/time/cost.h"

#include <algorithm>
#include <cmath>

#include "intarsia/base/error.h"

namespace intarsia::plan {

double matrix_seconds(const DeviceSpec& device, MatrixType type, double flops) {
  const auto index = static_cast<std::size_t>(type);
  const double rate = device.peak_flops[index] * device.matrix_efficiency[index];
  return (flops + device.half_flops) / rate;
}

double attention_seconds(const DeviceSpec& device, double flops) {
  return flops / (device.peak_flops[static_cast<std::size_t>(MatrixType::kHalf)] * device.attention_efficiency);
}

double memory_seconds(const DeviceSpec& device, double bytes) {
  return bytes / (device.memory_bandwidth * device.memory_efficiency);
}

double collective_seconds(const Link& link, Collective kind, double ranks, double bytes, Algorithm algorithm) {
  if (ranks <= 1) return 0;
  if (kind == Collective::kSend) return link.latency + bytes / link.rate();
  const double passes = kind == Collective::kAllReduce ? 2 : 1;
  const double share = passes * (ranks - 1) / ranks * bytes / link.rate();
  switch (algorithm) {
    case Algorithm::kRing:
      return passes * (ranks - 1) * link.latency + share;
    case Algorithm::kTree:  // pipelined: every byte goes up and comes down once
      return passes * std::log2(ranks) * link.latency + passes * bytes / link.rate();
    case Algorithm::kHalvingDoubling:
      return passes * std::log2(ranks) * link.latency + share;
  }
  return share;
}

const Link& slowest_link(const ClusterSpec& cluster, const AxisShape& axis) {
  return axis.ranks > axis.per_host ? cluster.inter : cluster.intra;
}

double axis_seconds(const ClusterSpec& cluster, const AxisShape& axis, Collective kind, double bytes) {
  if (axis.ranks <= axis.per_host) return collective_seconds(cluster.intra, kind, axis.ranks, bytes);
  Link rings = cluster.inter;
  rings.bandwidth *= axis.per_host;
  if (axis.per_host > 1 && rings.rate() > cluster.intra.rate())
    rings.bandwidth = cluster.intra.rate() / rings.efficiency;
  return collective_seconds(rings, kind, axis.ranks, bytes);
}

double hierarchical_seconds(const ClusterSpec& cluster, const AxisShape& axis, double bytes) {
  const double inside = collective_seconds(cluster.intra, Collective::kReduceScatter, axis.per_host, bytes) +
                        collective_seconds(cluster.intra, Collective::kAllGather, axis.per_host, bytes);
  return inside +
         collective_seconds(cluster.inter, Collective::kAllReduce, axis.ranks / axis.per_host, bytes / axis.per_host);
}

MatrixType matrix_type(DType compute_dtype) {
  return compute_dtype == DType::kF32 ? MatrixType::kFp32 : MatrixType::kHalf;
}

}  // namespace intarsia::plan
