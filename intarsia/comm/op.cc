#include "intarsia/comm/op.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include "intarsia/base/text.h"

namespace intarsia::comm {
namespace {

template <std::size_t N>
void keep_end(char (&field)[N], const std::string& text) {
  const std::string_view end =
      text.size() < N ? std::string_view(text) : std::string_view(text).substr(text.size() - (N - 1));
  std::memcpy(field, end.data(), end.size());
}

// FNV-1a: equal in every process, unlike std::hash by promise.
std::uint64_t hash_names(const Tag& tag) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::string& text : {tag.unit, std::string(1, '\0'), tag.phase}) {
    for (const char character : text) {
      hash = (hash ^ static_cast<unsigned char>(character)) * 1099511628211ULL;
    }
  }
  return hash;
}

std::string dtype_name(int dtype) {
  switch (static_cast<c10::ScalarType>(dtype)) {
    case c10::ScalarType::Float:
      return "fp32";
    case c10::ScalarType::BFloat16:
      return "bf16";
    case c10::ScalarType::Half:
      return "fp16";
    case c10::ScalarType::Long:
      return "int64";
    default:
      return c10::toString(static_cast<c10::ScalarType>(dtype));
  }
}

}  // namespace

const char* op_name(Op op) {
  switch (op) {
    case Op::kAllGather:
      return "all_gather";
    case Op::kReduceScatter:
      return "reduce_scatter";
    case Op::kAllReduce:
      return "all_reduce";
    case Op::kBroadcast:
      return "broadcast";
    case Op::kAllToAll:
      return "all_to_all";
    case Op::kSend:
      return "send";
    case Op::kRecv:
      return "recv";
    case Op::kBarrier:
      return "barrier";
    case Op::kAllocateShared:
      return "allocate_shared";
  }
  return "unknown operation";
}

OpDescriptor make_descriptor(Op op, const Tag& tag, std::int64_t count, int dtype, int argument) {
  OpDescriptor descriptor;
  descriptor.op = op;
  descriptor.dtype = static_cast<std::int8_t>(dtype);
  descriptor.argument = static_cast<std::int16_t>(argument);
  descriptor.count = count;
  descriptor.name_hash = hash_names(tag);
  keep_end(descriptor.unit, tag.unit);
  keep_end(descriptor.phase, tag.phase);
  return descriptor;
}

bool same_operation(const OpDescriptor& a, const OpDescriptor& b) {
  return a.op == b.op && a.dtype == b.dtype && a.argument == b.argument && a.count == b.count &&
         a.name_hash == b.name_hash;
}

std::string describe(const OpDescriptor& descriptor) {
  std::string text = op_name(descriptor.op);
  if (descriptor.op == Op::kAllocateShared) {
    text += concat(" of ", descriptor.count, " bytes");
  } else if (descriptor.dtype >= 0) {
    text += concat(" of ", descriptor.count, " ", dtype_name(descriptor.dtype));
  }
  if (descriptor.op == Op::kBroadcast) text += concat(" from rank ", descriptor.argument);
  if (descriptor.op == Op::kAllReduce) {
    text += descriptor.argument == static_cast<int>(ReduceOp::kSum) ? " (sum)" : " (max)";
  }
  const std::string unit = printable(descriptor.unit);
  const std::string phase = printable(descriptor.phase);
  if (!unit.empty() && !phase.empty()) return text + concat(" (unit '", unit, "', ", phase, ")");
  if (!unit.empty()) return text + concat(" (unit '", unit, "')");
  if (!phase.empty()) return text + concat(" (", phase, ")");
  return text;
}

std::vector<std::pair<OpDescriptor, std::vector<int>>> group_by_operation(const std::vector<OpDescriptor>& by_rank) {
  std::vector<std::pair<OpDescriptor, std::vector<int>>> groups;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank) {
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return same_operation(group.first, by_rank[rank]); });
    if (found == groups.end()) {
      groups.emplace_back(by_rank[rank], std::vector<int>{rank});
    } else {
      found->second.push_back(rank);
    }
  }
  return groups;
}

std::string describe_mismatch(const std::vector<OpDescriptor>& by_rank,
                              const std::vector<std::vector<std::int64_t>>& counts) {
  const auto groups = group_by_operation(by_rank);
  std::string text = concat("ranks called different operations at #", by_rank.front().sequence, ": ");
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (g > 0) text += "; ";
    text += concat(name_ranks(groups[g].second), ": ", describe(groups[g].first));
  }
  for (std::size_t g = 0; g < counts.size() && g < groups.size(); ++g) {
    // Equal counts tell nothing; unequal ones name the module that some ranks entered more often.
    if (std::adjacent_find(counts[g].begin(), counts[g].end(), std::not_equal_to<>()) == counts[g].end()) continue;
    const std::string unit = printable(groups[g].first.unit);
    text +=
        concat(". Calls so far of ", op_name(groups[g].first.op), unit.empty() ? "" : " for unit '" + unit + "'", ":");
    for (std::size_t rank = 0; rank < counts[g].size(); ++rank) {
      text += concat(rank == 0 ? " " : ", ", counts[g][rank], " on rank ", rank);
    }
  }
  return text + ". Every rank must call the same operations in the same order with equal sizes";
}

void CallCounts::add(const OpDescriptor& descriptor) { ++counts_[{descriptor.op, descriptor.unit}]; }

std::int64_t CallCounts::of(const OpDescriptor& descriptor) const {
  const auto found = counts_.find({descriptor.op, descriptor.unit});
  return found == counts_.end() ? 0 : found->second;
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  return concat(ranks.size() == 1 ? "rank " : "ranks ", join(names));
}

}  // namespace intarsia::comm
