// Opens a checkpoint of any peer.
#pragma once

#include <optional>
#include <string>

#include "intarsia/formats/peers/logical_checkpoint.h"

namespace intarsia::formats {

// The checkpoint that `path` means: itself, or in a folder that is none but has some, the newest: the one of the
// highest number of DeepSpeed's global_stepN (where no file "latest" names one), Trainer's checkpoint-N or Accelerate's
// checkpoint_N (also in its folder "checkpoints"). `path` where there is none. Errors: kIo when it cannot be listed.
std::string find_peer_checkpoint(const std::string& path);

// Reads what find_peer_checkpoint(`path`) holds: a folder or tag of DeepSpeed (stage 0, ZeRO-1, 2, 3, BF16_Optimizer,
// universal), of DCP (FSDP1, FSDP2, torchtitan's and Accelerate's folders, DCP with safetensors), a FULL_STATE_DICT of
// torch.save, a Hugging Face model or one of its files. Of weights nothing is read yet (of pytorch_model.bin all, for
// its checksums). A folder that is a peer's checkpoint and a Hugging Face model at once, as Trainer leaves them, is the
// checkpoint. Memory: the lists of tensors and pieces; one file's pickle at a time. Errors: kIo; kFormat with file and
// cause; kUnsupported for LOCAL_STATE_DICT, Megatron's formats and others, by name. Nothing in a file is executed.
LogicalCheckpoint open_checkpoint(const std::string& path);

// Whether `path` is a folder of a peer's checkpoint, and not a Hugging Face model or one of its files. Looks at names
// of files only.
bool is_peer_checkpoint(const std::string& path);

// Whether the weights in the folder `path` are only open_checkpoint()'s to read: a checkpoint of a peer without a
// Hugging Face model beside it.
bool needs_reader(const std::string& path);

// The folder whose config.json belongs to `path`: itself, or up to two above it. Nothing when none has one.
std::optional<std::string> find_config_folder(const std::string& path);

}  // namespace intarsia::formats
