#include "intarsia/checkpoint/open_native.h"

#include <optional>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/manifest.h"
#include "intarsia/checkpoint/verify.h"
#include "intarsia/formats/safetensors.h"

namespace intarsia::checkpoint {
namespace {

formats::TrainingState state_of(const Manifest& manifest) {
  const Progress& progress = manifest.progress;
  formats::TrainingState state{.step = progress.step,
                               .updates = progress.updates,
                               .samples = progress.data_position,
                               .tokens = progress.tokens,
                               .compute_dtype = manifest.compute_dtype};
  if (progress.loss_scale)
    state.loss_scale = formats::LossScaleRecord{.scale = progress.loss_scale->scale,
                                                .dynamic = true,
                                                .hysteresis_left = progress.loss_scale->hysteresis_left,
                                                .iteration = progress.loss_scale->iteration,
                                                .last_overflow = progress.loss_scale->last_overflow};
  return state;
}

}  // namespace

formats::LogicalCheckpoint open_native(const std::string& path, bool verify) {
  const Manifest manifest = read_manifest(path);
  formats::CheckpointContents contents;
  contents.path = path;
  contents.format = concat("Intarsia, stage ", manifest.stage);
  contents.ranks = manifest.ranks;
  contents.state = state_of(manifest);
  contents.config = manifest.model_config;
  contents.run_config = manifest.config;
  for (const StoredTensor& tensor : manifest.tensors)
    contents.tensors.push_back({.name = tensor.name,
                                .kind = std::string(kind_name(tensor.kind)),
                                .dtype = tensor.dtype,
                                .shape = tensor.shape});
  for (std::size_t index = 0; index < manifest.files.size(); ++index) {
    verify_file(path, manifest.files[index], verify ? Verify::kHashes : Verify::kSizes);
    const auto file = formats::SafetensorsFile::open(concat(path, "/", manifest.files[index].name));
    contents.files.push_back({.path = file.path(), .bytes = file.num_bytes(), .archives = {}, .is_verified = verify});
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
      const StoredTensor& tensor = manifest.tensors[i];
      for (const StoredPiece& piece : tensor.pieces) {
        if (piece.file != index) continue;
        const formats::TensorInfo& info = file.at(tensor.stored_name());
        INTARSIA_CHECK(kFormat, info.dtype == tensor.dtype && info.numel() == piece.elements.size(),
                       printable(file.path()), ": \"", printable(info.name), "\" is ", short_name(info.dtype), " ",
                       formats::shape_text(info.shape), ", the manifest says ", short_name(tensor.dtype), " [",
                       piece.elements.size(), "]");
        contents.tensors[i].pieces.push_back(
            {index, file.data_begin() + info.begin, {piece.elements.begin}, {piece.elements.size()}});
      }
    }
  }
  return formats::LogicalCheckpoint(std::move(contents));
}

}  // namespace intarsia::checkpoint
