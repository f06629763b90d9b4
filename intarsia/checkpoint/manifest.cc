#include "intarsia/checkpoint/manifest.h"

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/json.h"

namespace intarsia::checkpoint {
namespace {

// A list in JSON, each item on a line of its own: the file can be read, and differences between two be seen.
template <typename Items, typename Print>
std::string lines(const Items& items, char open, char close, const Print& print) {
  std::string text(1, open);
  for (const auto& item : items) text += concat(text.size() > 1 ? ",\n " : "\n ", print(item));
  return text + "\n" + close;
}

std::string piece_list(const StoredTensor& tensor) {
  std::string text = "[";
  for (const StoredPiece& piece : tensor.pieces)
    text +=
        concat(text.size() > 1 ? "," : "", "[", piece.file, ",", piece.elements.begin, ",", piece.elements.end, "]");
  return text + "]";
}

std::string dimensions(const StoredTensor& tensor) {
  std::string text = "[";
  for (const std::int64_t dim : tensor.shape) text += concat(text.size() > 1 ? "," : "", dim);
  return text + "]";
}

std::string block_digits(const StoredFile& file) {
  std::string text;
  text.reserve(8 * file.blocks.size());
  for (const std::uint32_t crc : file.blocks) text += crc32c_text(crc);
  return text;
}

std::string since_text(const Progress& progress) {
  if (!progress.not_reproducible_since) return "";
  return concat(", \"not_reproducible_since\": ", *progress.not_reproducible_since);
}

std::string loss_scale_text(const Progress& progress) {
  if (!progress.loss_scale) return "";
  const optim::LossScaleState& state = *progress.loss_scale;
  return concat(", \"loss_scale\": {\"scale\": ", shortest(state.scale),
                ", \"hysteresis_left\": ", state.hysteresis_left, ", \"iteration\": ", state.iteration,
                ", \"overflow_steps\": ", state.last_overflow + 1, "}");
}

}  // namespace

std::string StoredTensor::stored_name() const { return concat(kind_name(kind), ".", name); }

std::int64_t StoredTensor::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : shape) product *= dim;
  return product;
}

std::string body_name(int rank) {
  std::string digits = std::to_string(rank);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return concat("rank-", digits, ".safetensors");
}

std::string manifest_text(const Manifest& manifest) {
  using formats::json_quote;
  const Progress& progress = manifest.progress;
  const std::string body = concat(
      "{\"format\": \"intarsia-checkpoint\",\n\"format_version\": ", kFormatVersion,
      ",\n\"progress\": {\"step\": ", progress.step, ", \"updates\": ", progress.updates,
      ", \"data_position\": ", progress.data_position, ", \"tokens\": ", progress.tokens,
      ", \"bad_steps\": ", progress.bad_steps, ", \"seed\": ", progress.seed, since_text(progress),
      loss_scale_text(progress), "},\n\"layout\": {\"ranks\": ", manifest.ranks, ", \"stage\": ", manifest.stage,
      manifest.logical_micro_batches == 0 ? ""
                                          : concat(", \"logical_micro_batches\": ", manifest.logical_micro_batches),
      ", \"compute_dtype\": ", json_quote(safetensors_name(manifest.compute_dtype)), "},\n\"files\": ",
      lines(manifest.files, '[', ']',
            [](const StoredFile& file) {
              return concat("{\"name\": ", json_quote(file.name), ", \"bytes\": ", file.bytes, ", \"blocks\": \"",
                            block_digits(file), "\"}");
            }),
      ",\n\"tensors\": ",
      lines(manifest.tensors, '[', ']',
            [](const StoredTensor& tensor) {
              return concat("{\"name\": ", json_quote(tensor.name), ", \"kind\": \"", kind_name(tensor.kind),
                            "\", \"dtype\": \"", safetensors_name(tensor.dtype), "\", \"shape\": ", dimensions(tensor),
                            ", \"pieces\": ", piece_list(tensor), "}");
            }),
      ",\n\"config\": ", json_quote(manifest.config), ",\n\"model_config\": ", json_quote(manifest.model_config),
      ",\n\"versions\": ", lines(manifest.versions, '{', '}', [](const auto& entry) {
        return concat(json_quote(entry.first), ": ", json_quote(entry.second));
      }));
  return concat(body, ",\n\"crc32c\": \"", crc32c_text(crc32c(std::as_bytes(std::span(body)))), "\"}\n");
}

}  // namespace intarsia::checkpoint
