#include "intarsia/comm/mesh.h"

#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/comm/backends/gloo.h"
#include "intarsia/comm/backends/region_communicator.h"

namespace intarsia::comm {

std::shared_ptr<SharedRegion> shared_region_for(const plan::RunPlan& plan, std::int64_t heap_limit_bytes) {
  if (plan.backend == plan::CommBackend::kGloo) return nullptr;
  RegionOptions options;
  options.ranks = plan.ranks;
  options.process_ranks = plan.backend == plan::CommBackend::kShm;
  options.force_copy = plan.force_copy;
  options.timeout_seconds = plan.comm_timeout_seconds;
  options.heap_limit_bytes = heap_limit_bytes;
  return SharedRegion::create(options);
}

std::unique_ptr<Mesh> Mesh::create(const plan::RunPlan& plan, const Rendezvous& rendezvous) {
  INTARSIA_CHECK(kUsage, plan.ranks == rendezvous.world && rendezvous.rank >= 0 && rendezvous.rank < rendezvous.world,
                 "the plan is for ", plan.ranks, " ranks, but this is rank ", rendezvous.rank, " of ",
                 rendezvous.world);
  std::unique_ptr<Communicator> world;
  if (plan.backend == plan::CommBackend::kGloo) {
    GlooOptions options;
    options.rank = rendezvous.rank;
    options.size = rendezvous.world;
    options.address = rendezvous.master_address;
    options.port = rendezvous.master_port;
    options.listen_fd = rendezvous.listen_fd;
    options.store_served = rendezvous.store_served;
    options.store_prefix = rendezvous.store_prefix;
    options.timeout_seconds = plan.comm_timeout_seconds;
    world = make_gloo_communicator(options);
  } else {
    std::shared_ptr<SharedRegion> region = rendezvous.region;
    if (!region && rendezvous.world == 1) region = shared_region_for(plan);
    INTARSIA_INVARIANT(region, "ranks of one host need the region that was made before they were");
    INTARSIA_INVARIANT(region->options().ranks == rendezvous.world, "a region of ", region->options().ranks,
                       " ranks for a world of ", rendezvous.world);
    world = std::make_unique<RegionCommunicator>(std::move(region), rendezvous.rank);
  }
  return std::unique_ptr<Mesh>(new Mesh(std::move(world)));
}

}  // namespace intarsia::comm
