// Writes any checkpoint in DeepSpeed's universal layout.
#pragma once

#include <string>

#include "intarsia/formats/peers/copy_tensor.h"
#include "intarsia/formats/peers/peer_state.h"

namespace intarsia::formats {

// Writes DIRECTORY/global_stepN_universal and, last, DIRECTORY/latest_universal: for each trained parameter a folder
// zero/NAME with fp32.pt, exp_avg.pt, exp_avg_sq.pt and step.pt; zero/optimizer_state.pt with the groups and the loss
// scale; the model's file under the names that stages 1, 2 and 3 look for, with shapes, counters, the schedule's
// position and the frozen weights. DeepSpeed loads it with "checkpoint": {"load_universal": true} on any number of
// ranks. Memory: buffers of 4 MiB. Errors: kUsage when the folder has a checkpoint already, or `state` has no groups;
// kIo; those of LogicalCheckpoint::read. Source: DeepSpeed 0.19, checkpoint/ds_to_universal.py,
// universal_checkpoint.py.
void write_universal(const LogicalCheckpoint& checkpoint, const std::string& directory, const PeerState& state,
                     const WriteProgress& progress = {});

}  // namespace intarsia::formats
