// The communicators over which a data-parallel rank shares its state.
#pragma once

#include "intarsia/comm/communicator.h"

namespace intarsia::comm {

// The axes of plan::Grid as one rank sees them. They must outlive everybody who was given them.
struct DataAxes {
  // One shard group of all ranks.
  DataAxes(Communicator& all) : world(all), shard(all) {}  // NOLINT(google-explicit-constructor): one axis is all axes
  DataAxes(Communicator& all, Communicator& group, Communicator* column)
      : world(all), shard(group), replicate(column) {}

  Communicator& world;
  Communicator& shard;                // of this rank's shard group, by Grid::shard_of
  Communicator* replicate = nullptr;  // of the ranks with the same shard, by Grid::replica_of; null with one replica
};

}  // namespace intarsia::comm
