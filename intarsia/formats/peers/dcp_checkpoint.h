// Checkpoints of torch.distributed.checkpoint (DCP). Internal to formats.
#pragma once

#include <string>

#include "intarsia/formats/peers/logical_checkpoint.h"

namespace intarsia::formats {

// Whether `path` is a folder that DCP wrote, with .metadata or, unfinished, without; or one of Accelerate's or
// torchtitan's with such folders in it.
bool is_dcp(const std::string& path);
LogicalCheckpoint open_dcp(const std::string& path);

// Whether `path` is a folder of safetensors that DCP's HuggingFaceStorageWriter wrote, each tensor in pieces.
bool is_dcp_safetensors(const std::string& path);
LogicalCheckpoint open_dcp_safetensors(const std::string& path);

}  // namespace intarsia::formats
