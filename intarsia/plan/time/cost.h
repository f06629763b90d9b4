// Seconds of single operations: products, passes over memory, collectives.
#pragma once

#include "intarsia/plan/time/cluster.h"

namespace intarsia::plan {

// A matrix product of `flops` in `type`: the peak times an efficiency that grows with the product's size.
double matrix_seconds(const DeviceSpec& device, MatrixType type, double flops);
// Attention whose scores stay on the chip.
double attention_seconds(const DeviceSpec& device, double flops);
// Operations that do nothing but read and write.
double memory_seconds(const DeviceSpec& device, double bytes);

enum class Algorithm { kRing, kTree, kHalvingDoubling };
enum class Collective { kAllGather, kReduceScatter, kAllReduce, kSend };

// Of `bytes` (the tensor that holds all ranks' pieces) among `ranks` over a link that each rank has for itself.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (2005).
double collective_seconds(const Link& link, Collective kind, double ranks, double bytes,
                          Algorithm algorithm = Algorithm::kRing);

// Ranks of an axis as they lie in hosts.
struct AxisShape {
  double ranks = 1;
  double per_host = 1;  // of them in one host
};

// The same over an axis: inside one host by its link; across hosts by rings that use every member's own network card,
// so that a host's rate is per_host cards, and never more than the host's own link.
double axis_seconds(const ClusterSpec& cluster, const AxisShape& axis, Collective kind, double bytes);
// Reduced inside each host first, then across hosts, then gathered: an all-reduce whose slow link carries 1 / per_host.
double hierarchical_seconds(const ClusterSpec& cluster, const AxisShape& axis, double bytes);
// The link that decides an axis' time.
const Link& slowest_link(const ClusterSpec& cluster, const AxisShape& axis);

}  // namespace intarsia::plan
