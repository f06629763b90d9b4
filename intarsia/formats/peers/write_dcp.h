// Writes any checkpoint as one of torch.distributed.checkpoint (DCP).
#pragma once

#include <string>

#include "intarsia/formats/peers/copy_tensor.h"
#include "intarsia/formats/peers/peer_state.h"

namespace intarsia::formats {

enum class DcpLayout {
  kOneFolder,   // {"model": ..., "optim": ...} in DIRECTORY, as get_state_dict gives them
  kAccelerate,  // DIRECTORY/pytorch_model_fsdp_0 and DIRECTORY/optimizer_0, as Accelerate (and Trainer) names them
};

// Writes the weights, and where there are groups the optimizer's state and numbers, in fp32: entries of torch.save in
// __0_0.distcp, and .metadata last, so that a folder without it was not finished. torch reads any piece of them into
// any FSDP layout. The optimizer's numbers stand there twice, by group and by parameter, so that state dicts with and
// without flatten_optimizer_state_dict find theirs.
// Memory: buffers of 4 MiB and the metadata, about 1 KB an entry. Errors: kUsage when a folder has a checkpoint
// already; kIo; those of LogicalCheckpoint::read. Source: PyTorch 2.15, torch/distributed/checkpoint/filesystem.py.
void write_dcp(const LogicalCheckpoint& checkpoint, const std::string& directory, const PeerState& state,
               DcpLayout layout, const WriteProgress& progress = {});

}  // namespace intarsia::formats
