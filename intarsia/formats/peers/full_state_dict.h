// Whole weights: files of torch.save, safetensors, Hugging Face directories. Internal to formats.
#pragma once

#include <string>

#include "intarsia/formats/peers/logical_checkpoint.h"

namespace intarsia::formats {

// One file of torch.save: a dict of name to tensor, or a dict that has such under "model" (or "module", "state_dict",
// "model_state_dict") and perhaps FSDP's full optimizer state under "optimizer" ("optim", "optimizer_state_dict").
LogicalCheckpoint open_full_state_dict(const std::string& path);

// Accelerate's folder of FULL_STATE_DICT: pytorch_model_fsdp.bin, and perhaps optimizer.bin and scheduler.bin.
bool is_full_folder(const std::string& path);
LogicalCheckpoint open_full_folder(const std::string& path);

LogicalCheckpoint open_safetensors_weights(const std::string& path);
LogicalCheckpoint open_hf_weights(const std::string& directory);

}  // namespace intarsia::formats
