// Operations on tensors that may lie on a device, over a communicator that moves host memory.
#pragma once

#include "intarsia/comm/communicator.h"

namespace intarsia::comm {

// Host tensors go over `host`; device tensors over `direct` where the device has a communicator of its own, else
// through host memory over `host`: one copy each way, and host memory of the tensors' size until wait(). It shares no
// memory: parameters on a device are never mapped.
class DeviceCommunicator final : public Communicator {
 public:
  // Owns both. `direct` has the same ranks, or is null.
  explicit DeviceCommunicator(std::unique_ptr<Communicator> host, std::unique_ptr<Communicator> direct = nullptr)
      : host_(std::move(host)), direct_(std::move(direct)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string backend_name() const override;
  std::unique_ptr<Work> all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) override;
  std::unique_ptr<Work> broadcast(const at::Tensor& tensor, int root, const Tag& tag) override;
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> send(const at::Tensor& tensor, int to, const Tag& tag) override;
  std::unique_ptr<Work> recv(const at::Tensor& tensor, int from, const Tag& tag) override;
  void barrier(const Tag& tag) override { host_->barrier(tag); }
  // Null on all ranks.
  std::unique_ptr<SharedMemory> allocate_shared(std::int64_t) override { return nullptr; }
  void abort(const std::string& reason) noexcept override;
  double waited_seconds() const override;

 private:
  // The communicator that takes this tensor as it is, or null where it must pass through host memory.
  Communicator* taker(const at::Tensor& tensor) const;

  std::unique_ptr<Communicator> host_, direct_;
};

}  // namespace intarsia::comm
