#include "intarsia/comm/backends/gloo.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/comm/backends/checks.h"
#include "intarsia/comm/backends/gloo_transport.h"
#include "intarsia/comm/op.h"
#include "intarsia/comm/reduce.h"

namespace intarsia::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Message = GlooTransport::Message;

// Below this size an all_reduce sends the whole tensor to everyone and each rank adds all of it: one trip, not two.
constexpr std::int64_t kAddAllBytes = 64 * 1024;

// Note: tags. A collective's header goes under its number in the order of collectives, its data under a hash of number
// and descriptor. So both can be under way at once, and data never lands in a tensor of a rank that means another
// operation: the headers, which always match, tell of the difference.
constexpr int kSequenceMask = (1 << 27) - 1;
constexpr int kCountsTag = 1 << 27;
constexpr int kTransferTag = 1 << 28;
constexpr int kDataTag = 1 << 30;

int data_tag(const OpDescriptor& descriptor, std::uint64_t sequence, std::uint64_t kind) {
  std::uint64_t hash = descriptor.name_hash;
  for (const std::uint64_t part :
       {sequence, kind, static_cast<std::uint64_t>(descriptor.op), static_cast<std::uint64_t>(descriptor.dtype),
        static_cast<std::uint64_t>(descriptor.argument), static_cast<std::uint64_t>(descriptor.count)}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return kDataTag | static_cast<int>(hash & (kDataTag - 1));
}

int header_tag(std::uint64_t sequence) { return static_cast<int>(sequence & kSequenceMask); }

at::Tensor header_tensor(const OpDescriptor& descriptor) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(sizeof(OpDescriptor))}, at::kByte);
  std::memcpy(bytes.data_ptr(), &descriptor, sizeof(descriptor));
  return bytes;
}

OpDescriptor read_header(const at::Tensor& bytes) {
  OpDescriptor descriptor;
  std::memcpy(&descriptor, bytes.data_ptr(), sizeof(descriptor));
  // From the network: text ends where its field does.
  descriptor.unit[sizeof(descriptor.unit) - 1] = '\0';
  descriptor.phase[sizeof(descriptor.phase) - 1] = '\0';
  return descriptor;
}

// Bytes of a contiguous tensor: any dtype travels.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.detach().view({-1}).view(at::kByte); }

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const GlooOptions& options) : options_(options) {
    if (options_.size > 1) transport_ = GlooTransport::connect(options_);
    sent_.resize(options_.size, 0);
    received_.resize(options_.size, 0);
  }
  ~GlooCommunicator() override {
    if (transport_) transport_->leave();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string backend_name() const override { return "gloo"; }

  std::unique_ptr<Work> all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) override;
  std::unique_ptr<Work> broadcast(const at::Tensor& tensor, int root, const Tag& tag) override;
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> send(const at::Tensor& tensor, int to, const Tag& tag) override;
  std::unique_ptr<Work> recv(const at::Tensor& tensor, int from, const Tag& tag) override;
  void barrier(const Tag& tag) override;
  std::unique_ptr<SharedMemory> allocate_shared(std::int64_t /*bytes*/) override { return nullptr; }
  void abort(const std::string& reason) noexcept override;
  double waited_seconds() const override { return waited_seconds_; }

 private:
  friend class GlooExchange;
  friend class GlooTransfer;
  using Piece = std::function<at::Tensor(int peer)>;  // bytes to or from a peer; undefined or empty: nothing

  std::unique_ptr<class GlooExchange> start(const OpDescriptor& descriptor, const Piece& outgoing,
                                            const Piece& incoming);
  void throw_if_stopped();
  milliseconds left_until(Clock::time_point deadline) const;
  Clock::time_point deadline() const {
    return Clock::now() + milliseconds(static_cast<std::int64_t>(options_.timeout_seconds * 1000));
  }
  [[noreturn]] void peer_failed(int peer, const OpDescriptor& descriptor, Clock::time_point started);
  [[noreturn]] void report_mismatch(const std::vector<OpDescriptor>& by_rank, std::uint64_t sequence);
  [[noreturn]] void stop(const std::string& reason);
  bool set_reason(const std::string& reason) noexcept;

  const GlooOptions options_;
  std::unique_ptr<GlooTransport> transport_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sent_;      // messages to each rank
  std::vector<std::uint64_t> received_;  // messages asked from each rank
  CallCounts calls_;
  double waited_seconds_ = 0;
  std::optional<std::string> stopped_;
};

// A collective under way: its header to and from every rank, and the pieces.
class GlooExchange final : public Work {
 public:
  GlooExchange(GlooCommunicator& communicator, const OpDescriptor& descriptor)
      : communicator_(communicator), descriptor_(descriptor) {}

  void wait() override {
    if (finished_) return;
    finished_ = true;
    const auto started = Clock::now();
    communicator_.throw_if_stopped();
    const auto deadline = communicator_.deadline();
    const auto wait_all = [&](std::vector<std::unique_ptr<Message>>& messages) {
      for (int peer = 0; peer < static_cast<int>(messages.size()); ++peer) {
        if (!messages[peer]) continue;
        try {
          messages[peer]->wait(communicator_.left_until(deadline));
        } catch (const std::exception&) {
          communicator_.peer_failed(peer, descriptor_, started);
        }
      }
    };
    if (communicator_.size() > 1) {
      wait_all(header_recvs);
      check_headers();
      wait_all(header_sends);
      wait_all(recvs);
      wait_all(sends);
    }
    if (finish) finish();
    communicator_.waited_seconds_ += std::chrono::duration<double>(Clock::now() - started).count();
    if (continuation) continuation()->wait();
  }

  std::vector<at::Tensor> headers;  // by rank, own included
  std::vector<std::unique_ptr<Message>> header_sends, header_recvs, sends, recvs;
  std::function<void()> finish;                                 // after all pieces have come
  std::function<std::unique_ptr<GlooExchange>()> continuation;  // then: a second exchange of the same operation

 private:
  void check_headers() {
    std::vector<OpDescriptor> by_rank;
    bool equal = true;
    for (const at::Tensor& header : headers) {
      by_rank.push_back(read_header(header));
      equal = equal && same_operation(by_rank.back(), descriptor_);
    }
    if (!equal) communicator_.report_mismatch(by_rank, descriptor_.sequence);
  }

  GlooCommunicator& communicator_;
  OpDescriptor descriptor_;
  bool finished_ = false;
};

std::unique_ptr<GlooExchange> GlooCommunicator::start(const OpDescriptor& called, const Piece& outgoing,
                                                      const Piece& incoming) {
  OpDescriptor descriptor = called;
  descriptor.sequence = ++sequence_;
  calls_.add(descriptor);
  throw_if_stopped();
  auto exchange = std::make_unique<GlooExchange>(*this, descriptor);
  if (size() == 1) return exchange;
  const int tag = header_tag(descriptor.sequence);
  const int data = data_tag(descriptor, descriptor.sequence, 0);
  exchange->headers.resize(size());
  for (auto* list : {&exchange->header_sends, &exchange->header_recvs, &exchange->sends, &exchange->recvs}) {
    list->resize(size());
  }
  exchange->headers[rank()] = header_tensor(descriptor);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const auto started = Clock::now();
    try {
      exchange->headers[peer] = at::empty_like(exchange->headers[rank()]);
      exchange->header_recvs[peer] = transport_->recv(exchange->headers[peer], peer, tag);
      exchange->header_sends[peer] = transport_->send(exchange->headers[rank()], peer, tag);
      const at::Tensor in = incoming ? incoming(peer) : at::Tensor();
      const at::Tensor out = outgoing ? outgoing(peer) : at::Tensor();
      if (in.defined() && in.numel() > 0) exchange->recvs[peer] = transport_->recv(in, peer, data);
      if (out.defined() && out.numel() > 0) exchange->sends[peer] = transport_->send(out, peer, data);
    } catch (const std::exception&) {
      peer_failed(peer, descriptor, started);
    }
  }
  return exchange;
}

void GlooCommunicator::throw_if_stopped() {
  if (stopped_) throw AbortedByPeer(*stopped_);
}

milliseconds GlooCommunicator::left_until(Clock::time_point deadline) const {
  // Zero means "no limit" to c10d.
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
}

void GlooCommunicator::abort(const std::string& reason) noexcept { set_reason(reason); }

// Returns whether this rank is the first to stop.
bool GlooCommunicator::set_reason(const std::string& reason) noexcept {
  if (stopped_) return false;
  bool first = true;
  try {
    const auto settled = transport_ ? transport_->settle_reason(reason) : std::nullopt;
    stopped_ = settled ? settled->reason : reason;
    first = !settled || settled->first;
  } catch (const std::exception&) {
    stopped_.emplace();
  }
  // The other ranks are woken by the closing of the connections, and find the reason in the store.
  if (transport_) transport_->leave();
  transport_.reset();
  return first;
}

// The first rank to stop reports the reason as its own; the others learn it as AbortedByPeer.
void GlooCommunicator::stop(const std::string& reason) {
  throw_if_stopped();
  if (!set_reason(reason)) throw_if_stopped();
  throw Error(ErrorKind::kComm, reason);
}

void GlooCommunicator::peer_failed(int peer, const OpDescriptor& descriptor, Clock::time_point started) {
  const double waited = std::chrono::duration<double>(Clock::now() - started).count();
  const std::string where = concat(describe(descriptor), " #", descriptor.sequence);
  if (waited >= options_.timeout_seconds * 0.99) {
    stop(concat("timed out after ", shortest(options_.timeout_seconds), " s in ", where, " on rank ", rank(), " of ",
                size(), ": no answer from rank ", peer));
  }
  stop(concat("rank ", peer, " closed its connection (it died or stopped) while rank ", rank(), " of ", size(),
              " waited for it in ", where));
}

// All ranks have all headers, so all come here; a second exchange tells how often each has called what differs.
void GlooCommunicator::report_mismatch(const std::vector<OpDescriptor>& by_rank, std::uint64_t sequence) {
  const auto groups = group_by_operation(by_rank);
  std::vector<at::Tensor> counts(size());
  for (at::Tensor& of_rank : counts) of_rank = at::zeros({static_cast<std::int64_t>(groups.size())}, at::kLong);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    counts[rank()].data_ptr<std::int64_t>()[g] = calls_.of(groups[g].first);
  }
  std::vector<std::vector<std::int64_t>> by_group(groups.size(), std::vector<std::int64_t>(size()));
  try {
    std::vector<std::unique_ptr<Message>> messages;
    const int tag = kCountsTag | header_tag(sequence);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      messages.push_back(transport_->recv(counts[peer], peer, tag));
      messages.push_back(transport_->send(counts[rank()], peer, tag));
    }
    const auto until = deadline();
    for (const auto& message : messages) message->wait(left_until(until));
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (int peer = 0; peer < size(); ++peer) by_group[g][peer] = counts[peer].data_ptr<std::int64_t>()[g];
    }
  } catch (const std::exception&) {
    by_group.clear();
  }
  stop(describe_mismatch(by_rank, by_group));
}

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
      const auto started = Clock::now();
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

// A send or a recv under way.
class GlooTransfer final : public Work {
 public:
  GlooTransfer(GlooCommunicator& communicator, const OpDescriptor& descriptor, int peer, const at::Tensor& tensor,
               std::uint64_t number)
      : communicator_(communicator), descriptor_(descriptor), peer_(peer), is_send_(descriptor.op == Op::kSend) {
    OpDescriptor as_sent = descriptor;
    as_sent.op = Op::kSend;
    const int tag = kTransferTag | header_tag(number);
    const int data = data_tag(as_sent, number, 2);
    const at::Tensor bytes = as_bytes(tensor);
    const auto started = Clock::now();
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
    const auto started = Clock::now();
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
    communicator_.waited_seconds_ += std::chrono::duration<double>(Clock::now() - started).count();
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
  std::unique_ptr<Message> header_, data_;
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

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const GlooOptions& options) {
  return std::make_unique<GlooCommunicator>(options);
}

}  // namespace intarsia::comm
