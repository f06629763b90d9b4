#include "intarsia/checkpoint/save_phases.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <unordered_map>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/block_sums.h"
#include "intarsia/checkpoint/verify.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/io/file.h"
#include "intarsia/tensor/device.h"
#include "intarsia/tensor/dtype_map.h"

namespace intarsia::checkpoint {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Writes this rank's file, durably. A tensor goes by in parts, so that its checksums are taken from the cache.
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
  BlockSums sums;
  sums.add(io::as_bytes(layout.head));
  for (const formats::TensorInfo& tensor : layout.tensors) {
    const at::Tensor host = tensor::on_host(*values.at(tensor.name));  // one piece at a time
    for (auto rest = bytes_of(host); !rest.empty();) {
      const auto part = rest.first(std::min<std::size_t>(rest.size(), 4 * kBlockBytes));
      sums.add(part);
      writer.append(part);
      rest = rest.subspan(part.size());
    }
  }
  writer.finish();
  file.blocks = sums.take();
  return file;
}

Manifest make_manifest(const SaveRequest& request, const plan::RunPlan& plan, std::int64_t updates) {
  Manifest manifest{.progress = request.progress,
                    .ranks = plan.ranks,
                    .stage = plan.stage,
                    .logical_micro_batches = plan.reproducible ? plan.logical_order().count() : 0,
                    .compute_dtype = plan.compute_dtype,
                    .files = {},
                    .tensors = stored_tensors(plan),
                    .config = request.config,
                    .model_config = request.model_config,
                    .versions = request.versions};
  manifest.progress.updates = updates;
  manifest.versions["libtorch"] = TORCH_VERSION;
  return manifest;
}

}  // namespace

SavePhases::SavePhases(const SaveRequest& request, shard::Engine& engine, optim::Optimizer& optimizer)
    : request_(request),
      axis_(engine.world()),
      what_(concat("the checkpoint of step ", request.progress.step, " was not saved")),
      // Drawn by one rank: ranks that each named their folder would scatter one checkpoint over several.
      nonce_(broadcast_text(axis_, axis_.rank() == 0 ? draw_nonce() : "")),
      manifest_(make_manifest(request, engine.plan(), optimizer.updates())),
      pieces_(local_pieces(engine, optimizer, Part::kShard)) {
  check_same_state();
  all_or_none(axis_, what_, [&] {
    if (axis_.rank() == 0) folder_ = std::make_unique<WorkFolder>(request_.root, request_.progress.step, nonce_);
  });
}

// Pieces of different steps, configurations or layouts must never become one checkpoint.
void SavePhases::check_same_state() {
  const std::string mine =
      concat(request_.progress.step, " ", crc32c_text(crc32c(io::as_bytes(manifest_text(manifest_)))));
  const std::string first = broadcast_text(axis_, mine);
  all_or_none(axis_, what_, [&] {
    INTARSIA_INVARIANT(mine == first, "its progress, configuration or layout (step and CRC-32C ", mine,
                       ") differ from those of rank 0 (", first, ")");
  });
}

void SavePhases::run_local() {
  const std::string directory = work_path(request_.root, request_.progress.step, nonce_);
  const bool is_first = axis_.rank() == 0;
  switch (phase_) {
    case Phase::kWrite:
      mine_ = write_body(directory, axis_.rank(), pieces_);
      return;
    case Phase::kCommit:
      if (!is_first) return;
      io::write_file_atomic(concat(directory, "/", kManifestName), manifest_text(manifest_));
      folder_->commit();
      prunes_ = folder_->would_prune(retention());
      return;
    case Phase::kReadBack:
      if (prunes_) verify_on_disk(saved().path, mine_);
      return;
    case Phase::kPrune:
      if (is_first && prunes_) folder_->prune(retention());
      return;
    case Phase::kDone:
      return;
  }
}

void SavePhases::advance() {
  if (phase_ == Phase::kWrite) gather_files();
  if (phase_ == Phase::kCommit) prunes_ = !broadcast_text(axis_, prunes_ ? "yes" : "").empty();
  if (phase_ == Phase::kPrune) folder_.reset();
  phase_ = static_cast<Phase>(static_cast<int>(phase_) + 1);
}

void SavePhases::gather_files() {
  const auto gather = [&](const std::vector<std::int64_t>& values) {
    const at::Tensor own = at::tensor(values, at::kLong);
    at::Tensor all = at::empty({own.numel() * axis_.size()}, at::kLong);
    axis_.all_gather(all, own, {"", "checkpoint files"})->wait();
    return all;
  };
  const at::Tensor sizes = gather({static_cast<std::int64_t>(mine_.bytes)});
  std::size_t most_blocks = 0;
  for (int rank = 0; rank < axis_.size(); ++rank) {
    manifest_.files.push_back(
        {.name = body_name(rank), .bytes = static_cast<std::uint64_t>(sizes.const_data_ptr<std::int64_t>()[rank])});
    most_blocks = std::max(most_blocks, static_cast<std::size_t>(manifest_.files.back().num_blocks()));
  }
  std::vector<std::int64_t> padded(mine_.blocks.begin(), mine_.blocks.end());
  padded.resize(most_blocks);
  const at::Tensor blocks = gather(padded);
  const auto* values = blocks.const_data_ptr<std::int64_t>();
  for (StoredFile& file : manifest_.files) {
    for (std::size_t block = 0; block < file.num_blocks(); ++block)
      file.blocks.push_back(static_cast<std::uint32_t>(values[block]));
    values += most_blocks;
  }
}

Saved SavePhases::saved() const {
  Saved saved{.path = concat(request_.root, "/", step_name(request_.progress.step))};
  for (const StoredFile& file : manifest_.files) saved.bytes += file.bytes;
  return saved;
}

}  // namespace intarsia::checkpoint
