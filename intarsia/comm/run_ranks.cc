#include "intarsia/comm/run_ranks.h"

#include <ATen/Parallel.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/comm/mesh.h"
#include "intarsia/tensor/device.h"

namespace intarsia::comm {

void run_ranks(int ranks, const std::function<void(Communicator&)>& fn, const RunRanksOptions& options) {
  run_grid(
      {.shards = ranks}, [&fn](const DataAxes& axes) { fn(axes.world); }, options);
}

void run_grid(const plan::Grid& grid, const std::function<void(const DataAxes&)>& fn, const RunRanksOptions& options) {
  const int ranks = grid.ranks();
  plan::RunPlan plan;
  plan.ranks = ranks;
  plan.placement.replicas = grid.replicas;
  plan.backend = plan::CommBackend::kThreads;
  plan.force_copy = options.force_copy;
  plan.device = options.device;
  plan.comm_timeout_seconds = options.timeout_seconds;
  const SharedRegions regions = shared_regions_for(plan);
  std::mutex mutex;
  std::exception_ptr first;
  // The communicators outlive all threads, so that none sees another as gone before it has been told why.
  std::vector<std::unique_ptr<Mesh>> meshes(ranks);
  for (int rank = 0; rank < ranks; ++rank)
    meshes[rank] = Mesh::create(plan, {.rank = rank, .world = ranks, .local_rank = rank, .regions = regions});
  const auto body = [&](int rank) {
    at::set_num_threads(1);
    std::string reason = "unknown exception";
    std::exception_ptr error;
    bool secondary = false;
    try {
      tensor::use_device(options.device, rank);
      fn(meshes[rank]->data());
      meshes[rank].reset();
      return;
    } catch (const AbortedByPeer& caught) {
      error = std::current_exception();
      reason = caught.what();
      secondary = true;
    } catch (const std::exception& caught) {
      error = std::current_exception();
      reason = caught.what();
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex);
      if (!first && !secondary) first = error;
    }
    meshes[rank]->abort(concat("rank ", rank, ": ", reason));
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace intarsia::comm
