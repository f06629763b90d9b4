// The communicators of a run: built in one place, in one order on all ranks.
#pragma once

#include <memory>
#include <string>

#include "intarsia/comm/backends/shared_region.h"
#include "intarsia/comm/communicator.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::comm {

// What a rank knows about its place and about how ranks meet.
struct Rendezvous {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  std::string host = {};
  // Backends threads and shm: memory that all ranks inherit, made by shared_region_for() before they exist. A single
  // rank may leave it out.
  std::shared_ptr<SharedRegion> region = {};
  // Backend gloo.
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  int listen_fd = -1;         // rank 0: an inherited socket that listens there (listen_on); taken over
  bool store_served = false;  // the launcher serves the key-value store there (torchrun)
  std::string store_prefix = {};
};

// The region of a plan's ranks on one host, by backend, force_copy and comm_timeout_seconds; null for gloo.
// heap_limit_bytes: most bytes of shared allocations, 0: physical memory. Errors: kMemory.
std::shared_ptr<SharedRegion> shared_region_for(const plan::RunPlan& plan, std::int64_t heap_limit_bytes = 0);

// Owns the communicators. They live as long as the mesh.
class Mesh {
 public:
  // Collective over all ranks. Errors: kUsage when the plan and the rendezvous disagree on the number of ranks or the
  // port is taken; kComm when the ranks do not meet within the plan's timeout.
  static std::unique_ptr<Mesh> create(const plan::RunPlan& plan, const Rendezvous& rendezvous);

  Communicator& world() const { return *world_; }
  // Ranks that hold different data and, when sharded, different shards. Without other axes: the world.
  Communicator& data() const { return *world_; }

 private:
  explicit Mesh(std::unique_ptr<Communicator> world) : world_(std::move(world)) {}
  std::unique_ptr<Communicator> world_;
};

}  // namespace intarsia::comm
