#include "intarsia/comm/device_communicator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "intarsia/tensor/device.h"

namespace intarsia::comm {
namespace {

at::Tensor host_like(const at::Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options().device(at::kCPU)); }

// Keeps the host's copies until the inner operation is over, and brings the result to the device.
class Staged final : public Work {
 public:
  // `result` may be undefined: nothing comes back.
  Staged(std::unique_ptr<Work> inner, at::Tensor source, at::Tensor host_result, at::Tensor result)
      : inner_(std::move(inner)),
        source_(std::move(source)),
        host_result_(std::move(host_result)),
        result_(std::move(result)) {}
  void wait() override {
    if (!inner_) return;
    inner_->wait();
    inner_.reset();
    if (!result_.defined()) return;
    const at::NoGradGuard no_grad;
    result_.copy_(host_result_);
  }

 private:
  std::unique_ptr<Work> inner_;
  at::Tensor source_, host_result_, result_;
};

}  // namespace

std::string DeviceCommunicator::backend_name() const {
  return direct_ ? direct_->backend_name() : host_->backend_name() + ", through host memory";
}

Communicator* DeviceCommunicator::taker(const at::Tensor& tensor) const {
  return tensor.is_cpu() ? host_.get() : direct_.get();
}

std::unique_ptr<Work> DeviceCommunicator::all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  if (Communicator* to = taker(out)) return to->all_gather(out, in, tag);
  const at::Tensor host_in = tensor::on_host(in), host_out = host_like(out);
  return std::make_unique<Staged>(host_->all_gather(host_out, host_in, tag), host_in, host_out, out);
}

std::unique_ptr<Work> DeviceCommunicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  if (Communicator* to = taker(out)) return to->reduce_scatter(out, in, tag);
  const at::Tensor host_in = tensor::on_host(in), host_out = host_like(out);
  return std::make_unique<Staged>(host_->reduce_scatter(host_out, host_in, tag), host_in, host_out, out);
}

std::unique_ptr<Work> DeviceCommunicator::all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) {
  if (Communicator* to = taker(tensor)) return to->all_reduce(tensor, op, tag);
  const at::Tensor host = tensor::on_host(tensor);
  return std::make_unique<Staged>(host_->all_reduce(host, op, tag), at::Tensor(), host, tensor);
}

std::unique_ptr<Work> DeviceCommunicator::broadcast(const at::Tensor& tensor, int root, const Tag& tag) {
  if (Communicator* to = taker(tensor)) return to->broadcast(tensor, root, tag);
  const at::Tensor host = rank() == root ? tensor::on_host(tensor) : host_like(tensor);
  return std::make_unique<Staged>(host_->broadcast(host, root, tag), at::Tensor(), host,
                                  rank() == root ? at::Tensor() : tensor);
}

std::unique_ptr<Work> DeviceCommunicator::all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  if (Communicator* to = taker(out)) return to->all_to_all(out, in, tag);
  const at::Tensor host_in = tensor::on_host(in), host_out = host_like(out);
  return std::make_unique<Staged>(host_->all_to_all(host_out, host_in, tag), host_in, host_out, out);
}

std::unique_ptr<Work> DeviceCommunicator::send(const at::Tensor& tensor, int to, const Tag& tag) {
  if (Communicator* taken_by = taker(tensor)) return taken_by->send(tensor, to, tag);
  const at::Tensor host = tensor::on_host(tensor);
  return std::make_unique<Staged>(host_->send(host, to, tag), host, at::Tensor(), at::Tensor());
}

std::unique_ptr<Work> DeviceCommunicator::recv(const at::Tensor& tensor, int from, const Tag& tag) {
  if (Communicator* taken_by = taker(tensor)) return taken_by->recv(tensor, from, tag);
  const at::Tensor host = host_like(tensor);
  return std::make_unique<Staged>(host_->recv(host, from, tag), at::Tensor(), host, tensor);
}

void DeviceCommunicator::abort(const std::string& reason) noexcept {
  host_->abort(reason);
  if (direct_) direct_->abort(reason);
}

double DeviceCommunicator::waited_seconds() const {
  return host_->waited_seconds() + (direct_ ? direct_->waited_seconds() : 0);
}

}  // namespace intarsia::comm
