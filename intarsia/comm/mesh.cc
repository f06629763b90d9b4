#include "intarsia/comm/mesh.h"

#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/comm/backends/gloo.h"
#include "intarsia/comm/backends/nccl.h"
#include "intarsia/comm/backends/region_communicator.h"
#include "intarsia/comm/device_communicator.h"

namespace intarsia::comm {

namespace {

// One axis of a rank's mesh: which of the axis's groups it is in, and its place there.
struct Seat {
  const char* axis = "";
  int group = 0;
  int rank = 0;
  int size = 1;
};

std::unique_ptr<Communicator> join_host(const plan::RunPlan& plan, const Rendezvous& rendezvous, const Seat& seat,
                                        const std::shared_ptr<SharedRegion>& region) {
  if (plan.backend != plan::CommBackend::kGloo) {
    INTARSIA_INVARIANT(region, "ranks of one host need the region that was made before they were");
    INTARSIA_INVARIANT(region->options().ranks == seat.size, "a region of ", region->options().ranks,
                       " ranks for a group of ", seat.size);
    return std::make_unique<RegionCommunicator>(region, seat.rank);
  }
  const bool is_world = *seat.axis == '\0';
  GlooOptions options;
  options.rank = seat.rank;
  options.size = seat.size;
  options.address = rendezvous.master_address;
  options.port = rendezvous.master_port;
  options.listen_fd = is_world ? rendezvous.listen_fd : -1;
  options.store_served = !is_world || rendezvous.store_served;  // the world's rank 0 serves the other groups too
  options.store_prefix =
      is_world ? rendezvous.store_prefix : concat(rendezvous.store_prefix, seat.axis, "/", seat.group, "/");
  options.timeout_seconds = plan.comm_timeout_seconds;
  return make_gloo_communicator(options);
}

// Communicators of one rank, in the order in which all ranks make them: the world first.
class Joining {
 public:
  Joining(const plan::RunPlan& plan, const Rendezvous& rendezvous) : plan_(plan), rendezvous_(rendezvous) {}

  std::unique_ptr<Communicator> join(const Seat& seat, const std::shared_ptr<SharedRegion>& region) {
    std::unique_ptr<Communicator> host = join_host(plan_, rendezvous_, seat, region);
    if (plan_.device == DeviceKind::kCpu) return host;
    std::unique_ptr<Communicator> direct;
    if (plan_.device == DeviceKind::kCuda && plan_.ranks > 1) {
      if (!meeting_)
        meeting_ = std::make_unique<NcclMeeting>(*host, rendezvous_.master_address, plan_.comm_timeout_seconds);
      direct = meeting_->join(concat(seat.axis, "/", seat.group), seat.rank, seat.size);
    }
    return std::make_unique<DeviceCommunicator>(std::move(host), std::move(direct));
  }

 private:
  const plan::RunPlan& plan_;
  const Rendezvous& rendezvous_;
  std::unique_ptr<NcclMeeting> meeting_;
};

}  // namespace

SharedRegions shared_regions_for(const plan::RunPlan& plan, std::int64_t heap_limit_bytes) {
  SharedRegions regions;
  if (plan.backend == plan::CommBackend::kGloo) return regions;
  const auto region = [&](int ranks) {
    RegionOptions options;
    options.ranks = ranks;
    options.process_ranks = plan.backend == plan::CommBackend::kShm;
    options.force_copy = plan.force_copy;
    options.timeout_seconds = plan.comm_timeout_seconds;
    options.heap_limit_bytes = heap_limit_bytes;
    return SharedRegion::create(options);
  };
  regions.world = region(plan.ranks);
  const plan::Grid grid = plan.grid();
  if (grid.replicas == 1) return regions;
  for (int group = 0; group < grid.replicas; ++group) regions.groups.push_back(region(grid.shards));
  for (int column = 0; column < grid.shards; ++column) regions.columns.push_back(region(grid.replicas));
  return regions;
}

std::unique_ptr<Mesh> Mesh::create(const plan::RunPlan& plan, const Rendezvous& rendezvous) {
  INTARSIA_CHECK(kUsage, plan.ranks == rendezvous.world && rendezvous.rank >= 0 && rendezvous.rank < rendezvous.world,
                 "the plan is for ", plan.ranks, " ranks, but this is rank ", rendezvous.rank, " of ",
                 rendezvous.world);
  SharedRegions regions = rendezvous.regions;
  if (!regions.world && rendezvous.world == 1) regions = shared_regions_for(plan);
  const plan::Grid grid = plan.grid();
  const int shard = grid.shard_of(rendezvous.rank), replica = grid.replica_of(rendezvous.rank);
  std::unique_ptr<Mesh> mesh(new Mesh);
  Joining joining(plan, rendezvous);
  mesh->world_ = joining.join({.rank = rendezvous.rank, .size = rendezvous.world}, regions.world);
  if (grid.replicas == 1) return mesh;
  const bool here = plan.backend != plan::CommBackend::kGloo;
  mesh->group_ = joining.join({"shard", replica, shard, grid.shards},
                              here ? regions.groups[static_cast<std::size_t>(replica)] : nullptr);
  mesh->column_ = joining.join({"replicate", shard, replica, grid.replicas},
                               here ? regions.columns[static_cast<std::size_t>(shard)] : nullptr);
  return mesh;
}

DataAxes Mesh::data() const {
  if (!group_) return {*world_};
  return {*world_, *group_, column_.get()};
}

void Mesh::abort(const std::string& reason) noexcept {
  for (const auto* communicator : {&world_, &group_, &column_})
    if (*communicator) (*communicator)->abort(reason);
}

}  // namespace intarsia::comm
