// From a checkpoint of any format to what a peer's training checkpoint is written from.
#pragma once

#include "intarsia/formats/peers/peer_state.h"
#include "intarsia/plan/checkpoint_weights.h"

namespace intarsia::cli {

// Every parameter with its states, and the training state's counters. `model`: null where no config.json is known; then
// names, shapes and ties are the checkpoint's. No groups. Errors: kFormat.
formats::PeerState state_of(const formats::LogicalCheckpoint& checkpoint, const plan::CheckpointWeights* weights,
                            const plan::ModelSpec* model);

// Adds the optimizer's groups: of one of our checkpoints from the run's configuration, with the schedule's rate of the
// next update; else as the checkpoint tells them. Without any state of the optimizer: none. The moving average of the
// weights is dropped, with a warning. Errors: kUnsupported for optimizers other than Adam and AdamW, and where the
// checkpoint does not tell the optimizer's numbers; kFormat.
void add_groups(formats::PeerState& state, const formats::LogicalCheckpoint& checkpoint, const plan::ModelSpec* model);

}  // namespace intarsia::cli
