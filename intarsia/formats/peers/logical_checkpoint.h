// What any checkpoint holds, whoever wrote it: logical tensors, where their elements lie in files, and the training
// state's numbers. One loader, one converter and one list of contents serve all formats.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::formats {

// A box of a logical tensor, whose elements lie in a file one after another, row-major in the box. A box of one
// dimension in a tensor of several means elements [offset, offset + size) of the whole tensor in row-major order.
struct TensorPiece {
  std::size_t file = 0;     // index into LogicalCheckpoint::files()
  std::uint64_t begin = 0;  // byte in the file
  std::vector<std::int64_t> offsets = {}, sizes = {};

  std::int64_t numel() const;
};

// "master": the fp32 truth of a trained weight; "weight": a weight as the model has it, where no master is kept;
// else the optimizer's word for a state of a weight: "exp_avg", "exp_avg_sq", "momentum_buffer", ...
struct LogicalTensor {
  std::string name;  // of the parameter
  std::string kind = "weight";
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape = {};
  std::vector<TensorPiece> pieces = {};

  std::int64_t numel() const;
  std::string stored_name() const { return kind + "." + name; }
};

// Calls use(begin, count, skipped) for each run of elements of `piece` that also lie one after another in the tensor:
// elements [begin, begin + count) of the tensor stand behind `skipped` elements of the piece.
void for_each_run(const LogicalTensor& tensor, const TensorPiece& piece,
                  const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& use);

// A group of the optimizer: what it says about the weights in it.
struct ParameterGroup {
  std::vector<std::string> names = {};
  std::map<std::string, double> numbers = {};  // "lr" (that of the next update), "initial_lr" (the schedule's base),
                                               // "beta1", "beta2", "eps", "weight_decay"
};

// DeepSpeed's words, which optim::LossScaleState follows.
struct LossScaleRecord {
  double scale = 1;
  bool dynamic = false;
  std::int64_t hysteresis_left = 0;
  std::int64_t iteration = 0;
  std::int64_t last_overflow = -1;
  // Of a dynamic one, where the format tells; a run that goes on takes its own settings.
  std::int64_t window = 1000, hysteresis = 2;
  double min = 1;
  bool consecutive_hysteresis = false;
};

// The numbers of the training state; absent where the format does not tell.
struct TrainingState {
  std::optional<std::int64_t> step = {};     // optimizer steps, those skipped for bad gradients included
  std::optional<std::int64_t> updates = {};  // applied ones: Adam's counter
  std::optional<std::int64_t> samples = {};  // of the global order, used so far
  std::optional<std::int64_t> tokens = {};
  std::vector<ParameterGroup> groups = {};
  std::optional<LossScaleRecord> loss_scale = {};
  std::map<std::string, double> schedule = {};  // the numbers of the schedule's state, under the peer's names
  std::optional<DType> compute_dtype = {};
  std::string no_optimizer_state = {};  // why no state of the optimizer is here; empty: it is
};

struct CheckpointFile {
  std::string path;
  std::uint64_t bytes = 0;
  // Archives of torch.save in it, as [begin, end); their records have checksums. Other formats have none.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> archives = {};
  bool is_verified = false;  // its reader has compared all of it with a checksum that stands elsewhere
};

// What a reader has found. Pieces are checked by LogicalCheckpoint's constructor.
struct CheckpointContents {
  std::string path;    // as it was asked for
  std::string format;  // "DeepSpeed ZeRO-3", "PyTorch DCP", ...
  int ranks = 0;       // that wrote it; 0: not known
  std::vector<CheckpointFile> files;
  std::vector<LogicalTensor> tensors;
  std::map<std::string, std::string> aliases;  // other name of a tied weight -> the name it is stored under
  TrainingState state;
  std::string config = {};      // text of the model's config.json, where the checkpoint itself has it
  std::string run_config = {};  // of one of ours: the resolved configuration, JSON
};

// Invariant: every tensor's pieces cover it, do not meet, and lie inside their files as the files were when opened;
// no two tensors have the same kind and name. No file is held open. Threads: const members may be called at once.
class LogicalCheckpoint {
 public:
  // Errors: kFormat with path, tensor and what is wrong.
  explicit LogicalCheckpoint(CheckpointContents contents);
  LogicalCheckpoint(LogicalCheckpoint&&) = default;
  LogicalCheckpoint& operator=(LogicalCheckpoint&&) = default;

  const std::string& path() const { return contents_.path; }
  const std::string& format() const { return contents_.format; }
  int ranks() const { return contents_.ranks; }
  const std::vector<CheckpointFile>& files() const { return contents_.files; }
  const std::vector<LogicalTensor>& tensors() const { return contents_.tensors; }
  const std::map<std::string, std::string>& aliases() const { return contents_.aliases; }
  const TrainingState& state() const { return contents_.state; }
  const std::string& config() const { return contents_.config; }
  const std::string& run_config() const { return contents_.run_config; }

  // Null when there is no such tensor.
  const LogicalTensor* find(std::string_view kind, std::string_view name) const;
  // The master, or else the weight; also by the other name of a tied one.
  const LogicalTensor* weight(std::string_view name) const;
  // One of each parameter, in the checkpoint's order.
  std::vector<const LogicalTensor*> weights() const;

  // Writes elements [begin, end) of the tensor as fp32 to `out`, from however many files. Reads only those bytes.
  // Memory: a buffer of 1 MiB. Errors: kIo, also when a file has another size than when it was opened; kFormat for a
  // dtype that is no float.
  void read(const LogicalTensor& tensor, std::int64_t begin, std::int64_t end, float* out) const;

  // Compares files first, first + stride, ... with their checksums, where the format has any. Reads them whole.
  // Errors: kIo, kFormat with file and record.
  void verify(std::size_t first = 0, std::size_t stride = 1) const;
  // Whether every file has checksums, or was compared with one when it was opened.
  bool has_checksums() const;

 private:
  CheckpointContents contents_;
  std::unordered_map<std::string, const LogicalTensor*> index_;  // by stored_name()
};

// Checks shape and pieces alone, without their places in files. `path` is for messages. Errors: kFormat.
void check_pieces(const std::string& path, const LogicalTensor& tensor);

}  // namespace intarsia::formats
