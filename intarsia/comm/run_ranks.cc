#include "intarsia/comm/run_ranks.h"

#include <ATen/Parallel.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/comm/backends/region_communicator.h"

namespace intarsia::comm {

void run_ranks(int ranks, const std::function<void(Communicator&)>& fn, const RunRanksOptions& options) {
  RegionOptions region_options;
  region_options.ranks = ranks;
  region_options.process_ranks = false;
  region_options.force_copy = options.force_copy;
  region_options.timeout_seconds = options.timeout_seconds;
  const auto region = SharedRegion::create(region_options);
  std::mutex mutex;
  std::exception_ptr first;
  // The communicators outlive all threads, so that none sees another as gone before it has been told why.
  std::vector<std::unique_ptr<RegionCommunicator>> communicators(ranks);
  for (int rank = 0; rank < ranks; ++rank) communicators[rank] = std::make_unique<RegionCommunicator>(region, rank);
  const auto body = [&](int rank) {
    at::set_num_threads(1);
    std::string reason = "unknown exception";
    std::exception_ptr error;
    bool secondary = false;
    try {
      fn(*communicators[rank]);
      communicators[rank].reset();
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
    communicators[rank]->abort(concat("rank ", rank, ": ", reason));
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace intarsia::comm
