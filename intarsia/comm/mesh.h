// The communicators of a run: built in one place, in one order on all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "intarsia/comm/backends/shared_region.h"
#include "intarsia/comm/communicator.h"
#include "intarsia/comm/data_axes.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::comm {

// Memory that ranks of one host inherit, made before they exist: of all ranks and, with several shard groups, of each
// group and of each column of plan::Grid. Empty for gloo.
struct SharedRegions {
  std::shared_ptr<SharedRegion> world = {};
  std::vector<std::shared_ptr<SharedRegion>> groups = {}, columns = {};
};

// What a rank knows about its place and about how ranks meet.
struct Rendezvous {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  std::string host = {};
  // Backends threads and shm: made by shared_regions_for(). A single rank may leave it out.
  SharedRegions regions = {};
  // Backend gloo.
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  int listen_fd = -1;         // rank 0: an inherited socket that listens there (listen_on); taken over
  bool store_served = false;  // the launcher serves the key-value store there (torchrun)
  std::string store_prefix = {};
};

// The regions of a plan's ranks on one host, by backend, grid, force_copy and comm_timeout_seconds; none for gloo.
// heap_limit_bytes: most bytes of shared allocations of each, 0: physical memory. Errors: kMemory.
SharedRegions shared_regions_for(const plan::RunPlan& plan, std::int64_t heap_limit_bytes = 0);

// Owns the communicators. They live as long as the mesh.
class Mesh {
 public:
  // Collective over all ranks; with a device, after tensor::use_device() on the rank's thread. Errors: kUsage when the
  // plan and the rendezvous disagree on the number of ranks or the port is taken; kComm when the ranks do not meet
  // within the plan's timeout.
  static std::unique_ptr<Mesh> create(const plan::RunPlan& plan, const Rendezvous& rendezvous);

  Communicator& world() const { return *world_; }
  // Ranks that hold different data and, when sharded, different shards.
  DataAxes data() const;
  // Communicator::abort of every communicator of this rank.
  void abort(const std::string& reason) noexcept;

 private:
  Mesh() = default;
  std::unique_ptr<Communicator> world_, group_, column_;  // the last two only with several shard groups
};

}  // namespace intarsia::comm
