#include "intarsia/checkpoint/load_plan.h"

#include <algorithm>
#include <unordered_set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::checkpoint {
namespace {

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

// Of the model, whatever the optimizer.
bool is_weight(TensorKind kind) { return kind == TensorKind::kMaster || kind == TensorKind::kWeight; }

void add_blocks(std::uint64_t begin, std::uint64_t bytes, std::set<std::size_t>& blocks) {
  if (bytes == 0) return;
  for (std::uint64_t block = begin / kBlockBytes; block <= (begin + bytes - 1) / kBlockBytes; ++block)
    blocks.insert(block);
}

}  // namespace

LoadPlan::LoadPlan(const std::string& directory, const Manifest& manifest)
    : directory_(directory), manifest_(manifest) {
  for (const StoredTensor& tensor : manifest.tensors) stored_.emplace(tensor.stored_name(), &tensor);
}

const StoredTensor& LoadPlan::find(TensorKind kind, const std::string& name) const {
  const auto found = stored_.find(name);
  INTARSIA_CHECK(kFormat, found != stored_.end(), printable(directory_), " lacks \"", printable(name), "\", which ",
                 is_weight(kind) ? "this model has" : "this run's optimizer keeps");
  return *found->second;
}

void LoadPlan::check_tensors(const std::vector<StoredTensor>& wanted) const {
  for (const StoredTensor& want : wanted) {
    const StoredTensor& have = find(want.kind, want.stored_name());
    INTARSIA_CHECK(kFormat, have.shape == want.shape, printable(directory_), ": \"", printable(want.stored_name()),
                   "\" has shape ", formats::shape_text(have.shape), ", the model's is ",
                   formats::shape_text(want.shape));
    INTARSIA_CHECK(kFormat, is_float(have.dtype), printable(directory_), ": \"", printable(want.stored_name()),
                   "\" is ", short_name(have.dtype), "; it must be fp32, bf16 or fp16");
  }
  if (stored_.size() == wanted.size()) return;
  std::unordered_set<std::string> names, params;
  for (const StoredTensor& want : wanted) {
    names.insert(want.stored_name());
    params.insert(want.name);
  }
  for (const auto& [name, tensor] : stored_)
    INTARSIA_CHECK(kFormat, names.contains(name), printable(directory_), " holds \"", printable(name), "\", which ",
                   params.contains(tensor->name) && !is_weight(tensor->kind) ? "this run's optimizer does not keep"
                                                                             : "this model does not have");
}

void LoadPlan::add(const LocalPiece& wanted) {
  const StoredTensor& tensor = find(wanted.kind, wanted.stored_name());
  std::int64_t filled = wanted.elements.begin;
  for (const StoredPiece& piece : tensor.pieces) {
    const std::int64_t begin = std::max(piece.elements.begin, wanted.elements.begin);
    const std::int64_t end = std::min(piece.elements.end, wanted.elements.end);
    if (begin >= end) continue;
    const auto skipped = static_cast<std::uint64_t>(begin - piece.elements.begin) * dtype_size(tensor.dtype);
    reads_[piece.file].push_back({.tensor = &tensor,
                                  .piece = &piece,
                                  .skipped = skipped,
                                  .out = wanted.values.narrow(0, begin - wanted.elements.begin, end - begin)});
    filled = end;
  }
  INTARSIA_CHECK(kFormat, filled == wanted.elements.end, printable(directory_), ": \"", printable(wanted.stored_name()),
                 "\" lacks the elements ", filled, " to ", wanted.elements.end);
}

void LoadPlan::open_file(std::size_t index, std::vector<Read>& reads, Verify verify) {
  const StoredFile& file = manifest_.files[index];
  const std::string path = concat(directory_, "/", file.name);
  // The header's length is believed only after the block that it stands in.
  if (verify == Verify::kHashes && file.num_blocks() > 0) verify_blocks(io::open_read(path), path, file, {0});
  const BodyFile& body = files_.emplace(index, BodyFile(path)).first->second;
  std::set<std::size_t> blocks;
  add_blocks(0, body.data_begin(), blocks);
  for (Read& read : reads) {
    read.at = body.locate(*read.tensor, *read.piece) + read.skipped;
    add_blocks(read.at, static_cast<std::uint64_t>(read.out.numel()) * dtype_size(read.tensor->dtype), blocks);
  }
  blocks.erase(0);
  if (verify == Verify::kHashes) verify_blocks(body.fd(), path, file, blocks);
}

void LoadPlan::open_files(Verify verify) {
  for (auto& [index, reads] : reads_) open_file(index, reads, verify);
}

void LoadPlan::run() const {
  for (const auto& [index, reads] : reads_)
    for (const Read& read : reads) files_.at(index).read(read.at, read.tensor->dtype, read.out);
}

}  // namespace intarsia::checkpoint
