// What the readers of DeepSpeed's layouts share. Internal to formats.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "intarsia/formats/peers/archive_reader.h"
#include "intarsia/formats/peers/deepspeed_files.h"

namespace intarsia::formats {

struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
};

// A flat tensor of one rank: its partition of a group of parameters.
struct FlatPart {
  std::size_t file = 0;
  std::uint64_t begin = 0;  // byte
  std::int64_t numel = 0;
  DType dtype = DType::kF32;
};

// What a rank has of one group, by kind; the fp32 weights are "master".
using GroupParts = std::map<std::string, FlatPart>;

// What the model's file says, read from rank 0's.
struct DeepSpeedModel {
  std::vector<std::vector<NamedShape>> groups;  // param_shapes: of the optimizer's groups, in stage 3 its sub-groups
  std::vector<NamedShape> frozen;
};

// Reads the model's files: its state's numbers, ties, weights that no optimizer has (frozen ones; in stage 0 all), and
// the shapes that say how flat tensors are cut. Errors: kFormat, kUnsupported.
DeepSpeedModel read_deepspeed_model(const DeepSpeedFiles& files, CheckpointContents& contents);

// The moments of stage 0, which stand in the model's file under the numbers of the weights.
void read_deepspeed_stage0(const ArchiveFile& file, CheckpointContents& contents);

// Reads a rank's optimizer file, and from rank 0's the numbers of the training state.
struct DeepSpeedOptimizer {
  int stage = 0;  // 1 for BF16_Optimizer
  std::vector<GroupParts> groups;
  std::int64_t step = 0;  // Adam's counter; 0: not told
};
DeepSpeedOptimizer read_deepspeed_optimizer(const std::string& path, bool is_first, const DeepSpeedModel& model,
                                            CheckpointContents& contents);

// The numbers of an optimizer's state, as the optimizer files and zero/optimizer_state.pt of a universal checkpoint
// have them: groups and loss scale. `names`: of the parameters in each of the groups.
void read_deepspeed_numbers(const TorchArchive& archive, const PickleValue& state, const PickleValue& groups,
                            const std::vector<std::vector<std::string>>& names, TrainingState& out);

// Cuts the ranks' partitions into parameters. Stages 1, 2: a group is one row of elements, cut into equal partitions.
// Stage 3: each rank has the same share of every parameter. Errors: kFormat for sizes that do not agree.
void cut_stage12(const DeepSpeedModel& model, const std::vector<DeepSpeedOptimizer>& ranks,
                 CheckpointContents& contents);
void cut_stage3(const DeepSpeedModel& model, const std::vector<DeepSpeedOptimizer>& ranks,
                CheckpointContents& contents);

// A universal checkpoint's folder "zero".
void read_deepspeed_universal(const DeepSpeedFiles& files, const DeepSpeedModel& model, CheckpointContents& contents);

// The whole: finds the files and picks the layout.
LogicalCheckpoint open_deepspeed(const std::string& path);

}  // namespace intarsia::formats
