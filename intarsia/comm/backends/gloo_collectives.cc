// Collectives of the gloo backend: pieces to and from every rank, then our own sums.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/comm/backends/checks.h"
#include "intarsia/comm/backends/gloo_communicator.h"
#include "intarsia/comm/reduce.h"

namespace intarsia::comm {
namespace {

// Below this size an all_reduce sends the whole tensor to everyone and each rank adds all of it: one trip, not two.
constexpr std::int64_t kAddAllBytes = 64 * 1024;

}  // namespace

void GlooCommunicator::barrier(const Tag& tag) { start(make_descriptor(Op::kBarrier, tag), {}, {})->wait(); }

std::unique_ptr<Work> GlooCommunicator::all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  check_pieces(out, in, size(), "all_gather");
  const at::Tensor to = as_bytes(out);
  const at::Tensor from = as_bytes(in);
  const std::int64_t bytes = from.numel();
  const at::Tensor own = to.narrow(0, rank() * bytes, bytes);
  if (bytes > 0 && own.data_ptr() != from.data_ptr()) {
    std::memcpy(own.data_ptr(), from.data_ptr(), static_cast<std::size_t>(bytes));
  }
  return start(
      make_descriptor(Op::kAllGather, tag, in.numel(), static_cast<int>(in.scalar_type())), [&](int) { return from; },
      [&](int peer) { return to.narrow(0, peer * bytes, bytes); });
}

std::unique_ptr<Work> GlooCommunicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  check_pieces(in, out, size(), "reduce_scatter");
  const at::Tensor from = as_bytes(in);
  const std::int64_t bytes = static_cast<std::int64_t>(out.nbytes());
  std::vector<at::Tensor> pieces(size());
  for (int peer = 0; peer < size(); ++peer) {
    pieces[peer] = peer == rank() ? from.narrow(0, peer * bytes, bytes) : at::empty({bytes}, at::kByte);
  }
  auto exchange = start(
      make_descriptor(Op::kReduceScatter, tag, out.numel(), static_cast<int>(in.scalar_type())),
      [&](int peer) { return from.narrow(0, peer * bytes, bytes); }, [&](int peer) { return pieces[peer]; });
  exchange->finish = [pieces, out] {
    std::vector<const void*> sources;
    for (const at::Tensor& piece : pieces) sources.push_back(piece.data_ptr());
    reduce_in_order(out.data_ptr(), sources, out.numel(), out.scalar_type(), ReduceOp::kSum);
  };
  return exchange;
}

std::unique_ptr<Work> GlooCommunicator::all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) {
  check_tensor(tensor, "all_reduce");
  const at::Tensor data = as_bytes(tensor);
  const std::int64_t item = static_cast<std::int64_t>(tensor.element_size());
  const bool whole = data.numel() <= kAddAllBytes;
  const std::int64_t share = whole ? tensor.numel() : (tensor.numel() + size() - 1) / size();
  // Elements that rank `peer` adds, as bytes of the tensor.
  const auto part = [=](int peer) {
    const std::int64_t begin = whole ? 0 : std::min(tensor.numel(), share * peer);
    return data.narrow(0, begin * item, std::min(share, tensor.numel() - begin) * item);
  };
  const at::Tensor mine = part(rank());
  std::vector<at::Tensor> pieces(size());
  for (int peer = 0; peer < size(); ++peer) pieces[peer] = peer == rank() ? mine : at::empty_like(mine);
  OpDescriptor descriptor = make_descriptor(Op::kAllReduce, tag, tensor.numel(), static_cast<int>(tensor.scalar_type()),
                                            static_cast<int>(op));
  auto exchange = start(descriptor, part, [&](int peer) { return pieces[peer]; });
  exchange->finish = [pieces, mine, item, op, dtype = tensor.scalar_type()] {
    std::vector<const void*> sources;
    for (const at::Tensor& piece : pieces) sources.push_back(piece.data_ptr());
    reduce_in_order(mine.data_ptr(), sources, mine.numel() / item, dtype, op);
  };
  if (whole || size() == 1) return exchange;
  // The sums travel under the same number with their own tag; they are sent when wait() has formed them.
  descriptor.sequence = sequence_;
  const int data_of_sums = data_tag(descriptor, sequence_, 1);
  exchange->continuation = [this, part, mine, descriptor, data_of_sums] {
    auto second = std::make_unique<GlooExchange>(*this, descriptor);
    second->sends.resize(size());
    second->recvs.resize(size());
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const at::Tensor in = part(peer);
      const auto started = GlooClock::now();
      try {
        if (in.numel() > 0) second->recvs[peer] = transport_->recv(in, peer, data_of_sums);
        if (mine.numel() > 0) second->sends[peer] = transport_->send(mine, peer, data_of_sums);
      } catch (const std::exception&) {
        peer_failed(peer, descriptor, started);
      }
    }
    return second;
  };
  return exchange;
}

std::unique_ptr<Work> GlooCommunicator::broadcast(const at::Tensor& tensor, int root, const Tag& tag) {
  check_tensor(tensor, "broadcast");
  INTARSIA_INVARIANT(root >= 0 && root < size(), "broadcast from rank ", root, " of ", size());
  const at::Tensor data = as_bytes(tensor);
  return start(
      make_descriptor(Op::kBroadcast, tag, tensor.numel(), static_cast<int>(tensor.scalar_type()), root),
      [&](int) { return rank() == root ? data : at::Tensor(); },
      [&](int peer) { return peer == root ? data : at::Tensor(); });
}

std::unique_ptr<Work> GlooCommunicator::all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  check_exchange(out, in, size());
  const at::Tensor to = as_bytes(out);
  const at::Tensor from = as_bytes(in);
  const std::int64_t bytes = from.numel() / size();
  if (bytes > 0) {
    std::memcpy(to.narrow(0, rank() * bytes, bytes).data_ptr(), from.narrow(0, rank() * bytes, bytes).data_ptr(),
                static_cast<std::size_t>(bytes));
  }
  return start(
      make_descriptor(Op::kAllToAll, tag, in.numel(), static_cast<int>(in.scalar_type())),
      [&](int peer) { return from.narrow(0, peer * bytes, bytes); },
      [&](int peer) { return to.narrow(0, peer * bytes, bytes); });
}

}  // namespace intarsia::comm
