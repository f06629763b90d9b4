#include "intarsia/checkpoint/load.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/body_file.h"
#include "intarsia/checkpoint/inventory.h"

namespace intarsia::checkpoint {
namespace {

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

// Of the model, whatever the optimizer.
bool is_weight(TensorKind kind) { return kind == TensorKind::kMaster || kind == TensorKind::kWeight; }

// One contiguous read.
struct Read {
  const BodyFile* file = nullptr;
  std::uint64_t at = 0;  // byte in the file
  DType dtype = DType::kF32;
  at::Tensor out;
};

// What this rank will read, checked before anything is replaced.
class LoadPlan {
 public:
  LoadPlan(const std::string& directory, const Manifest& manifest, Verify verify)
      : directory_(directory), manifest_(manifest), verify_(verify) {
    for (const StoredTensor& tensor : manifest.tensors) stored_.emplace(tensor.stored_name(), &tensor);
  }

  // The model's tensors and the checkpoint's must be the same, in name, kind and shape.
  void check_tensors(const std::vector<StoredTensor>& wanted) {
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

  // Finds where `wanted` lies, and checks the files that have it.
  void add(const LocalPiece& wanted) {
    const StoredTensor& tensor = find(wanted.kind, wanted.stored_name());
    std::int64_t filled = wanted.elements.begin;
    for (const StoredPiece& piece : tensor.pieces) {
      const std::int64_t begin = std::max(piece.elements.begin, wanted.elements.begin);
      const std::int64_t end = std::min(piece.elements.end, wanted.elements.end);
      if (begin >= end) continue;
      const BodyFile& file = open(piece.file);
      const auto skipped = static_cast<std::uint64_t>(begin - piece.elements.begin) * dtype_size(tensor.dtype);
      reads_.push_back({.file = &file,
                        .at = file.locate(tensor, piece) + skipped,
                        .dtype = tensor.dtype,
                        .out = wanted.values.narrow(0, begin - wanted.elements.begin, end - begin)});
      filled = end;
    }
    INTARSIA_CHECK(kFormat, filled == wanted.elements.end, printable(directory_), ": \"",
                   printable(wanted.stored_name()), "\" lacks the elements ", filled, " to ", wanted.elements.end);
  }

  void run() const {
    for (const Read& read : reads_) read.file->read(read.at, read.dtype, read.out);
  }

 private:
  const StoredTensor& find(TensorKind kind, const std::string& name) const {
    const auto found = stored_.find(name);
    INTARSIA_CHECK(kFormat, found != stored_.end(), printable(directory_), " lacks \"", printable(name), "\", which ",
                   is_weight(kind) ? "this model has" : "this run's optimizer keeps");
    return *found->second;
  }
  const BodyFile& open(std::size_t index) {
    const auto found = files_.find(index);
    if (found != files_.end()) return found->second;
    const StoredFile& file = manifest_.files[index];
    if (verify_ == Verify::kHashes) verify_file(directory_, file, verify_);
    return files_.emplace(index, BodyFile(concat(directory_, "/", file.name))).first->second;
  }

  const std::string& directory_;
  const Manifest& manifest_;
  Verify verify_;
  std::unordered_map<std::string, const StoredTensor*> stored_;  // by stored_name()
  std::map<std::size_t, BodyFile> files_;                        // by index into Manifest::files
  std::vector<Read> reads_;
};

}  // namespace

Manifest load_checkpoint(const std::string& path, shard::Engine& engine, optim::Optimizer& optimizer, Verify verify) {
  const at::NoGradGuard no_grad;
  comm::Communicator& axis = engine.world();
  const std::string what = concat("the checkpoint ", printable(path), " was not loaded");
  Manifest manifest;
  std::optional<LoadPlan> load;
  all_or_none(axis, what, [&] {
    manifest = read_manifest(path);
    for (const StoredFile& file : manifest.files) verify_file(path, file, Verify::kSizes);
    load.emplace(path, manifest, verify);
    load->check_tensors(stored_tensors(engine.plan()));
    for (const LocalPiece& piece : local_pieces(engine, optimizer, Part::kHeld)) load->add(piece);
  });
  all_or_none(axis, what, [&] { load->run(); });
  optimizer.set_updates(manifest.progress.updates);
  engine.publish();
  return manifest;
}

}  // namespace intarsia::checkpoint
