// Writes any checkpoint as one of ours.
#pragma once

#include <string>

#include "intarsia/formats/peers/copy_tensor.h"
#include "intarsia/formats/peers/peer_state.h"

namespace intarsia::checkpoint {

// Writes RUN/checkpoints/step-N with one body file, by the commit protocol of a save. Values are exact: masters in
// fp32, states in fp32 or, where they are stored so, in bf16, frozen weights as they are stored. `model_config`: the
// text of config.json, empty where it is not known. The run's configuration is kept where the checkpoint has one; where
// it has none, a run that resumes has nothing to compare with. Memory: buffers of 4 MiB. Errors: kUsage when RUN has
// checkpoints, or `state` has no state of an optimizer; kIo; kUnsupported for states that no optimizer here keeps;
// those of LogicalCheckpoint::read.
void write_native(const formats::LogicalCheckpoint& checkpoint, const std::string& run, const formats::PeerState& state,
                  const std::string& model_config, const formats::WriteProgress& progress = {});

}  // namespace intarsia::checkpoint
