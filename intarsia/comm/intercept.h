// A communicator that passes every operation on to another one, with a look at it before and behind.
#pragma once

#include "intarsia/comm/communicator.h"
#include "intarsia/comm/op.h"

namespace intarsia::comm {

// Base of the decorators. The inner communicator must outlive it.
class InterceptingCommunicator : public Communicator {
 public:
  explicit InterceptingCommunicator(Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string backend_name() const override { return inner_.backend_name(); }
  std::unique_ptr<Work> all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override {
    before(Op::kAllGather, bytes(out), tag);
    return after(inner_.all_gather(out, in, tag));
  }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override {
    before(Op::kReduceScatter, bytes(in), tag);
    return after(inner_.reduce_scatter(out, in, tag));
  }
  std::unique_ptr<Work> all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) override {
    before(Op::kAllReduce, bytes(tensor), tag);
    return after(inner_.all_reduce(tensor, op, tag));
  }
  std::unique_ptr<Work> broadcast(const at::Tensor& tensor, int root, const Tag& tag) override {
    before(Op::kBroadcast, bytes(tensor), tag);
    return after(inner_.broadcast(tensor, root, tag));
  }
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override {
    before(Op::kAllToAll, bytes(in), tag);
    return after(inner_.all_to_all(out, in, tag));
  }
  std::unique_ptr<Work> send(const at::Tensor& tensor, int to, const Tag& tag) override {
    before(Op::kSend, bytes(tensor), tag);
    return after(inner_.send(tensor, to, tag));
  }
  std::unique_ptr<Work> recv(const at::Tensor& tensor, int from, const Tag& tag) override {
    before(Op::kRecv, bytes(tensor), tag);
    return after(inner_.recv(tensor, from, tag));
  }
  void barrier(const Tag& tag) override {
    before(Op::kBarrier, 0, tag);
    inner_.barrier(tag);
    after_barrier();
  }
  std::unique_ptr<SharedMemory> allocate_shared(std::int64_t bytes_wanted) override {
    before(Op::kAllocateShared, bytes_wanted, {});
    return inner_.allocate_shared(bytes_wanted);
  }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }
  double waited_seconds() const override { return inner_.waited_seconds(); }

 protected:
  // Called before each operation, with the bytes of the tensor that holds the pieces of all ranks.
  virtual void before(Op op, std::int64_t bytes, const Tag& tag) = 0;
  // Called behind each but allocate_shared: with what the operation has given, to pass on or to wrap.
  virtual std::unique_ptr<Work> after(std::unique_ptr<Work> work) { return work; }
  virtual void after_barrier() {}

 private:
  static std::int64_t bytes(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }
  Communicator& inner_;
};

}  // namespace intarsia::comm
