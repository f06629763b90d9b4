// What a rank says about an operation before any data moves, so that ranks which disagree find out at once.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/comm/communicator.h"

namespace intarsia::comm {

enum class Op : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
  kAllocateShared,
};

// "all_gather", "reduce_scatter", ...
const char* op_name(Op op);

// Plain bytes: it travels through shared memory and sockets. Long names keep their end, where layers differ, and are
// told apart by the hash of the whole.
struct OpDescriptor {
  Op op = Op::kBarrier;
  std::int8_t dtype = -1;     // c10::ScalarType, -1 without a tensor
  std::int16_t argument = 0;  // root of a broadcast, ReduceOp of an all_reduce
  std::int32_t reserved = 0;
  std::int64_t count = 0;  // elements of the tensor that all ranks have in equal size; bytes of allocate_shared
  std::uint64_t sequence = 0;
  std::uint64_t name_hash = 0;  // of unit and phase
  char unit[88] = {};
  char phase[24] = {};
};
static_assert(sizeof(OpDescriptor) == 144);

OpDescriptor make_descriptor(Op op, const Tag& tag, std::int64_t count = 0, int dtype = -1, int argument = 0);

// Whether two ranks mean the same operation. The sequence number does not count: it is for messages.
bool same_operation(const OpDescriptor& a, const OpDescriptor& b);

// "all_gather of 4096 fp32 (unit 'model.layers.3', gather)".
std::string describe(const OpDescriptor& descriptor);

// The distinct operations among those of all ranks, each with its ranks, in order of first rank.
std::vector<std::pair<OpDescriptor, std::vector<int>>> group_by_operation(const std::vector<OpDescriptor>& by_rank);

// One line that names every rank and what it called. counts[g][r] is how often rank r had called the operation of group
// g (same op and unit); empty when unknown.
std::string describe_mismatch(const std::vector<OpDescriptor>& by_rank,
                              const std::vector<std::vector<std::int64_t>>& counts);

// How often this rank has called each (op, unit).
class CallCounts {
 public:
  void add(const OpDescriptor& descriptor);
  std::int64_t of(const OpDescriptor& descriptor) const;

 private:
  std::map<std::pair<Op, std::string>, std::int64_t> counts_;
};

// "ranks 1, 2, 5" or "rank 3".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace intarsia::comm
