#include "intarsia/checkpoint/save.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <memory>
#include <unordered_map>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/inventory.h"
#include "intarsia/checkpoint/root_folder.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/io/file.h"
#include "intarsia/tensor/dtype_map.h"

namespace intarsia::checkpoint {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Writes this rank's file, durably.
StoredFile write_body(const std::string& directory, int rank, const std::vector<LocalPiece>& pieces) {
  std::vector<formats::TensorDecl> tensors;
  std::unordered_map<std::string, const at::Tensor*> values;
  for (const LocalPiece& piece : pieces) {
    tensors.push_back({.name = piece.stored_name(),
                       .dtype = tensor::dtype_of(piece.values.scalar_type()),
                       .shape = {piece.elements.size()}});
    values[piece.stored_name()] = &piece.values;
  }
  StoredFile file{.name = body_name(rank)};
  auto writer = formats::SafetensorsWriter::create(concat(directory, "/", file.name),
                                                   formats::layout_safetensors(std::move(tensors)));
  const formats::SafetensorsLayout& layout = writer.layout();
  file.bytes = layout.file_bytes;
  file.crc32c = crc32c(io::as_bytes(layout.head));
  for (const formats::TensorInfo& tensor : layout.tensors) {
    const auto bytes = bytes_of(*values.at(tensor.name));
    writer.append(bytes);
    file.crc32c = crc32c(bytes, file.crc32c);
  }
  writer.finish();
  return file;
}

std::vector<StoredFile> gather_files(comm::Communicator& axis, const StoredFile& mine) {
  const at::Tensor own =
      at::tensor({static_cast<std::int64_t>(mine.bytes), static_cast<std::int64_t>(mine.crc32c)}, at::kLong);
  const at::Tensor all = at::empty({2 * axis.size()}, at::kLong);
  axis.all_gather(all, own, {"", "checkpoint files"})->wait();
  const std::int64_t* values = all.const_data_ptr<std::int64_t>();
  std::vector<StoredFile> files;
  for (int rank = 0; rank < axis.size(); ++rank, values += 2)
    files.push_back({.name = body_name(rank),
                     .bytes = static_cast<std::uint64_t>(values[0]),
                     .crc32c = static_cast<std::uint32_t>(values[1])});
  return files;
}

Manifest make_manifest(const SaveRequest& request, const plan::RunPlan& plan, std::int64_t updates,
                       std::vector<StoredFile> files) {
  Manifest manifest{.progress = request.progress,
                    .ranks = plan.ranks,
                    .stage = plan.stage,
                    .logical_micro_batches = plan.reproducible ? plan.logical_order().count() : 0,
                    .compute_dtype = plan.compute_dtype,
                    .files = std::move(files),
                    .tensors = stored_tensors(plan),
                    .config = request.config,
                    .model_config = request.model_config,
                    .versions = request.versions};
  manifest.progress.updates = updates;
  manifest.versions["libtorch"] = TORCH_VERSION;
  return manifest;
}

}  // namespace

Saved save_checkpoint(const SaveRequest& request, shard::Engine& engine, optim::Optimizer& optimizer) {
  comm::Communicator& axis = engine.world();
  const std::int64_t step = request.progress.step;
  const std::string what = concat("the checkpoint of step ", step, " was not saved");
  // Drawn by one rank: ranks that each named their folder would scatter one checkpoint over several.
  const std::string nonce = broadcast_text(axis, axis.rank() == 0 ? draw_nonce() : "");

  std::unique_ptr<WorkFolder> folder;
  all_or_none(axis, what, [&] {
    if (axis.rank() == 0) folder = std::make_unique<WorkFolder>(request.root, step, nonce);
  });
  StoredFile mine;
  all_or_none(axis, what, [&] {
    mine = write_body(work_path(request.root, step, nonce), axis.rank(), local_pieces(engine, optimizer, Part::kShard));
  });
  std::vector<StoredFile> files = gather_files(axis, mine);
  Saved saved{.path = concat(request.root, "/", step_name(step))};
  for (const StoredFile& file : files) saved.bytes += file.bytes;
  all_or_none(axis, what, [&] {
    if (axis.rank() != 0) return;
    const Manifest manifest = make_manifest(request, engine.plan(), optimizer.updates(), std::move(files));
    io::write_file_atomic(concat(folder->path(), "/", kManifestName), manifest_text(manifest));
    folder->commit(request.keep);
  });
  return saved;
}

}  // namespace intarsia::checkpoint
