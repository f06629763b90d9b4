// send and recv of the gloo backend.
#include <ATen/ATen.h>

#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/comm/backends/checks.h"
#include "intarsia/comm/backends/gloo_communicator.h"

namespace intarsia::comm {

// A send or a recv under way.
class GlooTransfer final : public GlooWork {
 public:
  GlooTransfer(GlooCommunicator& communicator, const OpDescriptor& descriptor, int peer, const at::Tensor& tensor,
               std::uint64_t number)
      : GlooWork(communicator.live_),
        communicator_(communicator),
        descriptor_(descriptor),
        peer_(peer),
        is_send_(descriptor.op == Op::kSend) {
    OpDescriptor as_sent = descriptor;
    as_sent.op = Op::kSend;
    const int tag = kTransferTag | header_tag(number);
    const int data = data_tag(as_sent, number, 2);
    const at::Tensor bytes = as_bytes(tensor);
    const auto started = GlooClock::now();
    try {
      header_bytes_ = header_tensor(as_sent);
      GlooTransport& transport = *communicator.transport_;
      header_ = is_send_ ? transport.send(header_bytes_, peer, tag) : transport.recv(header_bytes_, peer, tag);
      if (bytes.numel() > 0) data_ = is_send_ ? transport.send(bytes, peer, data) : transport.recv(bytes, peer, data);
    } catch (const std::exception&) {
      communicator.peer_failed(peer, descriptor, started);
    }
  }

  void wait() override {
    if (finished_) return;
    finished_ = true;
    communicator_.throw_if_stopped();
    const auto started = GlooClock::now();
    const auto deadline = communicator_.deadline();
    try {
      header_->wait(communicator_.left_until(deadline));
    } catch (const std::exception&) {
      communicator_.peer_failed(peer_, descriptor_, started);
    }
    if (!is_send_) check_header();
    try {
      if (data_) data_->wait(communicator_.left_until(deadline));
    } catch (const std::exception&) {
      communicator_.peer_failed(peer_, descriptor_, started);
    }
    communicator_.waited_seconds_ += std::chrono::duration<double>(GlooClock::now() - started).count();
  }

  void drop_messages() noexcept override {
    header_.reset();
    data_.reset();
  }

 private:
  void check_header() {
    const OpDescriptor sent = read_header(header_bytes_);
    OpDescriptor as_received = sent;
    as_received.op = Op::kRecv;
    if (same_operation(as_received, descriptor_)) return;
    communicator_.stop(concat("rank ", peer_, " sent what rank ", communicator_.rank(),
                              " does not expect: ", describe(sent), " against ", describe(descriptor_)));
  }

  GlooCommunicator& communicator_;
  OpDescriptor descriptor_;
  int peer_;
  bool is_send_;
  bool finished_ = false;
  at::Tensor header_bytes_;
  std::unique_ptr<GlooTransport::Message> header_, data_;
};

std::unique_ptr<Work> GlooCommunicator::send(const at::Tensor& tensor, int to, const Tag& tag) {
  check_tensor(tensor, "send");
  check_peer(to, rank(), size(), "send");
  throw_if_stopped();
  OpDescriptor descriptor = make_descriptor(Op::kSend, tag, tensor.numel(), static_cast<int>(tensor.scalar_type()));
  descriptor.sequence = ++sent_[to];
  return std::make_unique<GlooTransfer>(*this, descriptor, to, tensor, descriptor.sequence);
}

std::unique_ptr<Work> GlooCommunicator::recv(const at::Tensor& tensor, int from, const Tag& tag) {
  check_tensor(tensor, "recv");
  check_peer(from, rank(), size(), "recv");
  throw_if_stopped();
  OpDescriptor descriptor = make_descriptor(Op::kRecv, tag, tensor.numel(), static_cast<int>(tensor.scalar_type()));
  descriptor.sequence = ++received_[from];
  return std::make_unique<GlooTransfer>(*this, descriptor, from, tensor, descriptor.sequence);
}

}  // namespace intarsia::comm
