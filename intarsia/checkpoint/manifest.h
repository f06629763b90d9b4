// The manifest of a checkpoint: what it holds and where, and everything of the run that is no tensor. It knows logical
// tensors and pieces of them only: no padding, no flat buffers, no shards. docs/formats/checkpoint.md has every byte.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/optim/loss_scale.h"
#include "intarsia/plan/optimizer_states.h"

namespace intarsia::checkpoint {

inline constexpr std::int64_t kFormatVersion = 2;
// Bytes of a file that one checksum covers; the last block of a file may be shorter.
inline constexpr std::uint64_t kBlockBytes = 1 << 20;
inline constexpr std::string_view kManifestName = "manifest.json";

// How far a run has come.
struct Progress {
  std::int64_t step = 0;           // optimizer steps, those skipped for bad gradients included
  std::int64_t updates = 0;        // applied updates: Adam's counter and the position in the schedule
  std::int64_t data_position = 0;  // samples of the global order used so far; no rank has one of its own
  std::int64_t tokens = 0;         // target tokens seen
  std::int64_t bad_steps = 0;      // steps in a row, up to now, whose loss or gradient was not finite
  std::uint64_t seed = 0;
  std::optional<optim::LossScaleState> loss_scale = {};  // of a dynamic one
  // The step from which on the run was not reproducible any more (--not-reproducible); none: it kept its mode.
  std::optional<std::int64_t> not_reproducible_since = {};

  bool operator==(const Progress&) const = default;
};

using plan::kind_name;
using plan::TensorKind;

// Elements [begin, end) of the logical tensor in row-major order. In the file they are the one-dimensional tensor
// "KIND.NAME", for example "exp_avg.model.norm.weight".
struct StoredPiece {
  std::size_t file = 0;  // index into Manifest::files
  plan::Range elements;
};

struct StoredTensor {
  std::string name;  // of the parameter, as in the model file
  TensorKind kind = TensorKind::kMaster;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;       // logical
  std::vector<StoredPiece> pieces = {};  // by begin; they neither meet nor leave a gap

  std::string stored_name() const;  // "KIND.NAME"
  std::int64_t numel() const;
};

struct StoredFile {
  std::string name;  // "rank-00003.safetensors", beside the manifest
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> blocks = {};  // CRC-32C of each kBlockBytes

  std::uint64_t num_blocks() const { return bytes / kBlockBytes + (bytes % kBlockBytes != 0 ? 1 : 0); }
};
std::string body_name(int rank);

struct Manifest {
  Progress progress;
  // The layout that wrote it. For people: loading does not depend on it.
  int ranks = 1;
  int stage = 0;
  // Logical micro-batches of a reproducible run, which keeps its bits only with the same number; 0: not reproducible.
  std::int64_t logical_micro_batches = 0;
  DType compute_dtype = DType::kF32;
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;
  std::string config;                           // the resolved configuration, JSON
  std::string model_config;                     // config.json of the model
  std::map<std::string, std::string> versions;  // library -> version
};

// The text of manifest.json, which ends with a checksum of itself.
std::string manifest_text(const Manifest& manifest);

// Reads what manifest_text() wrote. `path` is for messages. Untrusted: all limits of the format are checked, nothing is
// allocated beyond a small multiple of the text. Errors: kFormat; kUnsupported for another format version.
Manifest parse_manifest(std::string_view text, const std::string& path);

// parse_manifest() of `directory`/manifest.json. Errors: also kIo.
Manifest read_manifest(const std::string& directory);

}  // namespace intarsia::checkpoint
