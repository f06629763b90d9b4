// NCCL through c10d, for tensors on CUDA devices.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "intarsia/comm/communicator.h"

namespace intarsia::cuda {

// An operation runs on a stream of NCCL's, after what the calling thread's stream holds when it is started; wait()
// makes the calling thread's stream wait for it, not the host. So a gather or a reduction goes on beside the
// computation that is started between the two calls. Sums are the tree of comm::Communicator, as on every backend:
// ranks exchange their pieces and each adds its own, on its device. Memory of a reduction: its input once more. An
// operation that takes longer than the deadline ends the process (c10d's watchdog): the launcher sees a dead rank.
// shared allocations: none; barrier: DeviceCommunicator asks the host's communicator.
class NcclCommunicator final : public comm::Communicator {
 public:
  NcclCommunicator(const c10::intrusive_ptr<c10d::Store>& store, const std::string& axis, int rank, int size,
                   double timeout_seconds);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string backend_name() const override { return "nccl"; }
  std::unique_ptr<comm::Work> all_gather(const at::Tensor& out, const at::Tensor& in, const comm::Tag& tag) override;
  std::unique_ptr<comm::Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                             const comm::Tag& tag) override;
  std::unique_ptr<comm::Work> all_reduce(const at::Tensor& tensor, comm::ReduceOp op, const comm::Tag& tag) override;
  std::unique_ptr<comm::Work> broadcast(const at::Tensor& tensor, int root, const comm::Tag& tag) override;
  std::unique_ptr<comm::Work> all_to_all(const at::Tensor& out, const at::Tensor& in, const comm::Tag& tag) override;
  std::unique_ptr<comm::Work> send(const at::Tensor& tensor, int to, const comm::Tag& tag) override;
  std::unique_ptr<comm::Work> recv(const at::Tensor& tensor, int from, const comm::Tag& tag) override;
  void barrier(const comm::Tag& tag) override;
  std::unique_ptr<comm::SharedMemory> allocate_shared(std::int64_t) override { return nullptr; }
  void abort(const std::string& reason) noexcept override;
  // 0: the host does not wait.
  double waited_seconds() const override { return 0; }

 private:
  using Started = c10::intrusive_ptr<c10d::Work>;
  Started exchange(const at::Tensor& out, const at::Tensor& in);

  int rank_;
  int size_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace intarsia::cuda
