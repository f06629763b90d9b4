// What Accelerate and Hugging Face's Trainer write beside weights and optimizer. Internal to formats.
#pragma once

#include <string>

#include "intarsia/formats/peers/logical_checkpoint.h"

namespace intarsia::formats {

// Reads of the folder `path`, each where it is there: scheduler.bin or scheduler.pt (the schedule's numbers), scaler.pt
// (the loss scale of torch's GradScaler) and trainer_state.json (global_step). Random states are left alone.
// Errors: kIo, kFormat, kUnsupported.
void read_accelerate_files(const std::string& path, CheckpointContents& contents);

}  // namespace intarsia::formats
