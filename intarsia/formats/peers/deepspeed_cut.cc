// From the ranks' flat partitions to parameters. Source: DeepSpeed 0.19, utils/zero_to_fp32.py and checkpoint/
// ds_to_universal.py, whose layouts these are.
#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/deepspeed_reader.h"

namespace intarsia::formats {
namespace {

// The tensors of one parameter, of every kind that rank 0 has of its group.
std::vector<LogicalTensor> tensors_of(const NamedShape& param, const GroupParts& parts) {
  std::vector<LogicalTensor> out;
  for (const auto& [kind, part] : parts)
    out.push_back({.name = param.name, .kind = kind, .dtype = part.dtype, .shape = param.shape});
  return out;
}

const FlatPart& part_of(const DeepSpeedOptimizer& rank, std::size_t group, const std::string& kind, DType dtype,
                        const CheckpointContents& contents, std::size_t index) {
  const auto found = rank.groups.at(group).find(kind);
  INTARSIA_CHECK(kFormat, found != rank.groups[group].end() && found->second.dtype == dtype, printable(contents.path),
                 ": rank ", index, " has no \"", printable(kind), "\" of group ", group, " as rank 0 has it");
  return found->second;
}

void add_piece(LogicalTensor& tensor, const FlatPart& part, std::int64_t from, std::int64_t element,
               std::int64_t count) {
  if (count <= 0) return;
  tensor.pieces.push_back({.file = part.file,
                           .begin = part.begin + static_cast<std::uint64_t>(from) * dtype_size(part.dtype),
                           .offsets = {element},
                           .sizes = {count}});
}

void check_groups(const DeepSpeedModel& model, const std::vector<DeepSpeedOptimizer>& ranks,
                  const CheckpointContents& contents) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    INTARSIA_CHECK(kFormat, ranks[rank].groups.size() == model.groups.size(), printable(contents.path), ": rank ", rank,
                   " has flat tensors of ", ranks[rank].groups.size(), " groups, the model's file names ",
                   model.groups.size());
}

}  // namespace

void cut_stage12(const DeepSpeedModel& model, const std::vector<DeepSpeedOptimizer>& ranks,
                 CheckpointContents& contents) {
  check_groups(model, ranks, contents);
  const auto num_ranks = static_cast<std::int64_t>(ranks.size());
  for (std::size_t group = 0; group < model.groups.size(); ++group) {
    std::int64_t numel = 0, partition = 0;  // of the group without padding; of a rank with it
    for (const NamedShape& param : model.groups[group]) numel += param.numel;
    for (const DeepSpeedOptimizer& rank : ranks)
      for (const auto& [kind, part] : rank.groups[group]) partition = std::max(partition, part.numel);
    INTARSIA_CHECK(kFormat, partition >= (numel + num_ranks - 1) / num_ranks, printable(contents.path), ": ",
                   ranks.size(), " partitions of ", partition, " elements are too few for the ", numel, " of group ",
                   group);
    // Padding is at the end of the last ranks' partitions; masters come without it, moments with it.
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::int64_t real =
          std::clamp(numel - static_cast<std::int64_t>(rank) * partition, std::int64_t{0}, partition);
      for (const auto& [kind, part] : ranks[rank].groups[group])
        INTARSIA_CHECK(kFormat, part.numel == real || part.numel == partition, printable(contents.path), ": rank ",
                       rank, " has ", part.numel, " elements of \"", printable(kind), "\" of group ", group,
                       ", expected ", real, " or with padding ", partition);
    }
    std::int64_t begin = 0;
    for (const NamedShape& param : model.groups[group]) {
      for (LogicalTensor& tensor : tensors_of(param, ranks[0].groups[group])) {
        for (std::int64_t rank = partition > 0 ? begin / partition : 0; rank < num_ranks; ++rank) {
          const std::int64_t from = std::max(begin, rank * partition);
          const std::int64_t to = std::min(begin + param.numel, (rank + 1) * partition);
          if (from >= to) break;
          const auto index = static_cast<std::size_t>(rank);
          add_piece(tensor, part_of(ranks[index], group, tensor.kind, tensor.dtype, contents, index),
                    from - rank * partition, from - begin, to - from);
        }
        contents.tensors.push_back(std::move(tensor));
      }
      begin += param.numel;
    }
  }
}

void cut_stage3(const DeepSpeedModel& model, const std::vector<DeepSpeedOptimizer>& ranks,
                CheckpointContents& contents) {
  check_groups(model, ranks, contents);
  const auto num_ranks = static_cast<std::int64_t>(ranks.size());
  for (std::size_t group = 0; group < model.groups.size(); ++group) {
    std::int64_t length = 0;  // of a rank's flat tensor
    for (const NamedShape& param : model.groups[group]) length += (param.numel + num_ranks - 1) / num_ranks;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      for (const auto& [kind, part] : ranks[rank].groups[group])
        INTARSIA_CHECK(kFormat, part.numel == length, printable(contents.path), ": rank ", rank, " has ", part.numel,
                       " elements of \"", printable(kind), "\" of sub-group ", group, ", the shapes say ", length);
    std::int64_t offset = 0;
    for (const NamedShape& param : model.groups[group]) {
      const std::int64_t share = (param.numel + num_ranks - 1) / num_ranks;
      for (LogicalTensor& tensor : tensors_of(param, ranks[0].groups[group])) {
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
          const std::int64_t begin = static_cast<std::int64_t>(rank) * share;
          add_piece(tensor, part_of(ranks[rank], group, tensor.kind, tensor.dtype, contents, rank), offset, begin,
                    std::min(share, param.numel - begin));
        }
        contents.tensors.push_back(std::move(tensor));
      }
      offset += share;
    }
  }
}

}  // namespace intarsia::formats
