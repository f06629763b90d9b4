// The threads and shm backends: one mechanism over a SharedRegion.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/comm/backends/shared_region.h"
#include "intarsia/comm/communicator.h"
#include "intarsia/comm/op.h"

namespace intarsia::comm {

// Note: rounds. A collective is one or more rounds. In a round each rank publishes a descriptor and some bytes (in its
// staging buffer, or the address of memory that all can read), meets the others, and then reads what they published.
// Buffers alternate with the parity of the round, so that no second meeting is needed before the next round. The first
// round of a collective compares descriptors: ranks that disagree find out before they use any data.
//
// Collectives are done when the call returns; send and recv make progress while the rank waits in any operation.
class RegionCommunicator final : public Communicator {
 public:
  // Joins `region` as `rank`; in the thread or process that will be that rank. Every rank joins once.
  RegionCommunicator(std::shared_ptr<SharedRegion> region, int rank);
  ~RegionCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string backend_name() const override { return region_->options().process_ranks ? "shm" : "threads"; }

  std::unique_ptr<Work> all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) override;
  std::unique_ptr<Work> broadcast(const at::Tensor& tensor, int root, const Tag& tag) override;
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> send(const at::Tensor& tensor, int to, const Tag& tag) override;
  std::unique_ptr<Work> recv(const at::Tensor& tensor, int from, const Tag& tag) override;
  void barrier(const Tag& tag) override;
  std::unique_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override;
  void abort(const std::string& reason) noexcept override;
  double waited_seconds() const override { return waited_seconds_; }

 private:
  friend class TransferWork;
  struct Transfer;
  using Clock = std::chrono::steady_clock;

  // Rounds (region_communicator.cc).
  void begin_operation(const OpDescriptor& descriptor);
  std::byte* next_staging() const { return region_->staging(rank_, static_cast<int>((round_ + 1) & 1)); }
  void meet(const OpDescriptor& descriptor, const void* direct, std::int64_t value, bool compare);
  const RankSlot::Published& published(int rank) const { return region_->slot(rank).published[round_ & 1]; }
  const std::byte* staged(int rank) const { return region_->staging(rank, static_cast<int>(round_ & 1)); }
  bool all_direct() const;
  void arrive_and_wait(const OpDescriptor& descriptor);
  bool reached(std::uint32_t round) const;
  std::vector<int> missing_ranks(std::uint32_t round) const;
  void check_ranks_alive(const std::vector<int>& missing, const OpDescriptor& descriptor);
  void report_mismatch();
  void throw_if_aborted() const;
  [[noreturn]] void stop(const std::string& reason);
  bool set_reason(const std::string& reason) noexcept;
  // Runs fill(begin, length, staging) and drain(begin, length) over [0, count) in rounds of `step` elements.
  template <typename Fill, typename Drain>
  void in_rounds(const OpDescriptor& descriptor, std::int64_t count, std::int64_t step, Fill fill, Drain drain);

  // send and recv (region_transfer.cc).
  std::unique_ptr<Work> start_transfer(const at::Tensor& tensor, int peer, bool is_send, const Tag& tag);
  bool progress_transfers();
  bool progress(Transfer& transfer);
  void ring_doorbell(int peer);
  bool transfers_pending() const { return pending_transfers_ > 0; }
  void wait_for(const std::shared_ptr<Transfer>& transfer);

  const std::shared_ptr<SharedRegion> region_;
  const int rank_;
  const int size_;
  std::uint32_t round_ = 0;
  std::uint64_t sequence_ = 0;
  CallCounts calls_;
  double waited_seconds_ = 0;
  std::vector<std::deque<std::shared_ptr<Transfer>>> sends_;  // by receiver, in order
  std::vector<std::deque<std::shared_ptr<Transfer>>> recvs_;  // by sender, in order
  int pending_transfers_ = 0;
};

}  // namespace intarsia::comm
