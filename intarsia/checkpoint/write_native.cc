#include "intarsia/checkpoint/write_native.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/block_sums.h"
#include "intarsia/checkpoint/manifest.h"
#include "intarsia/checkpoint/root_folder.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/io/file.h"

namespace intarsia::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Source {
  StoredTensor stored;
  const formats::LogicalTensor* tensor = nullptr;
};

bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

TensorKind kind_of(const std::string& word, const std::string& path) {
  for (const TensorKind kind : plan::kTensorKinds)
    if (word == kind_name(kind)) return kind;
  fail(ErrorKind::kUnsupported, printable(path), " has a state \"", printable(word), "\" of its weights, which no ",
       "optimizer here keeps");
}

std::vector<Source> sources_of(const formats::PeerState& state, const std::string& path) {
  std::vector<Source> out;
  for (const formats::PeerParam& param : state.params) {
    const bool trained = !param.states.empty();
    const auto add = [&](TensorKind kind, DType dtype, const formats::LogicalTensor& tensor,
                         const std::vector<std::int64_t>& shape) {
      StoredTensor stored{.name = param.name, .kind = kind, .dtype = dtype, .shape = shape};
      if (stored.numel() > 0) stored.pieces.push_back({0, {0, stored.numel()}});
      out.push_back({std::move(stored), &tensor});
    };
    const DType weight = param.weight->dtype;
    add(trained ? TensorKind::kMaster : TensorKind::kWeight, !trained && is_half(weight) ? weight : DType::kF32,
        *param.weight, param.shape);
    for (const auto& [kind, tensor] : param.states)
      add(kind_of(kind, path), tensor->dtype == DType::kBF16 ? DType::kBF16 : DType::kF32, *tensor,
          tensor->numel() == param.weight->numel() ? param.shape : tensor->shape);
  }
  return out;
}

StoredFile write_body(const std::string& folder, const std::vector<Source>& sources, formats::TensorCopier& copier) {
  std::vector<formats::TensorDecl> tensors;
  std::unordered_map<std::string, const Source*> by_name;
  for (const Source& source : sources) {
    tensors.push_back(
        {.name = source.stored.stored_name(), .dtype = source.stored.dtype, .shape = {source.stored.numel()}});
    by_name.emplace(tensors.back().name, &source);
  }
  StoredFile file{.name = body_name(0)};
  auto writer = formats::SafetensorsWriter::create(concat(folder, "/", file.name),
                                                   formats::layout_safetensors(std::move(tensors)));
  const formats::SafetensorsLayout& layout = writer.layout();
  file.bytes = layout.file_bytes;
  copier.expect(static_cast<std::int64_t>(file.bytes - layout.data_begin()));
  BlockSums sums;
  sums.add(io::as_bytes(layout.head));
  for (const formats::TensorInfo& tensor : layout.tensors)
    copier.copy(*by_name.at(tensor.name)->tensor, tensor.dtype, [&](std::span<const std::byte> bytes) {
      sums.add(bytes);
      writer.append(bytes);
    });
  writer.finish();
  file.blocks = sums.take();
  return file;
}

}  // namespace

void write_native(const formats::LogicalCheckpoint& checkpoint, const std::string& run, const formats::PeerState& state,
                  const std::string& model_config, const formats::WriteProgress& progress) {
  const std::string root = (fs::path(run) / "checkpoints").string();
  INTARSIA_CHECK(kUsage, list_steps(root).empty(), printable(run), " holds checkpoints already; name a folder that is ",
                 "new");
  INTARSIA_CHECK(
      kUsage, std::ranges::any_of(state.params, [](const formats::PeerParam& p) { return !p.states.empty(); }),
      printable(checkpoint.path()), " has no state of the optimizer, which a checkpoint to resume from must ",
      "have: ", checkpoint.state().no_optimizer_state, "; write its weights with --to hf, and train from them");
  std::error_code error;
  fs::create_directories(root, error);
  if (error) io::fail_io("create the folder", root, error.value());
  const std::vector<Source> sources = sources_of(state, checkpoint.path());
  WorkFolder folder(root, state.step, draw_nonce());
  formats::TensorCopier copier(checkpoint, progress);
  Manifest manifest{.progress = {.step = state.step,
                                 .updates = state.updates,
                                 .data_position = state.samples,
                                 .tokens = checkpoint.state().tokens.value_or(0)},
                    .compute_dtype = checkpoint.state().compute_dtype.value_or(DType::kF32),
                    .files = {write_body(folder.path(), sources, copier)},
                    .tensors = {},
                    .config = checkpoint.run_config(),
                    .model_config = model_config,
                    .versions = {}};
  if (state.loss_scale && state.loss_scale->dynamic)
    manifest.progress.loss_scale = optim::LossScaleState{.scale = state.loss_scale->scale,
                                                         .hysteresis_left = state.loss_scale->hysteresis_left,
                                                         .iteration = state.loss_scale->iteration,
                                                         .last_overflow = state.loss_scale->last_overflow};
  for (const Source& source : sources) manifest.tensors.push_back(source.stored);
  io::write_file_atomic(concat(folder.path(), "/", kManifestName), manifest_text(manifest));
  folder.commit();
}

}  // namespace intarsia::checkpoint
