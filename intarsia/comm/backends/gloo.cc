#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/comm/backends/gloo_communicator.h"

namespace intarsia::comm {

using Clock = GlooClock;
using std::chrono::milliseconds;
using Message = GlooTransport::Message;

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

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.detach().view({-1}).view(at::kByte); }

void GlooExchange::wait() {
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

void GlooExchange::check_headers() {
  std::vector<OpDescriptor> by_rank;
  bool equal = true;
  for (const at::Tensor& header : headers) {
    by_rank.push_back(read_header(header));
    equal = equal && same_operation(by_rank.back(), descriptor_);
  }
  if (!equal) communicator_.report_mismatch(by_rank, descriptor_.sequence);
}

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
    if (settled) {
      stopped_ = settled->reason;
    } else if (transport_ && !options_.store_served && rank() != 0 && !reason.starts_with("rank 0 ")) {
      // Whom we waited for may only have been quicker to notice: the store went with rank 0.
      stopped_ = concat("rank 0, which serves the ranks' store, died or stopped: ", reason);
    } else {
      stopped_ = reason;
    }
    first = !settled || settled->first;
  } catch (const std::exception&) {
    stopped_.emplace();
  }
  // The other ranks are woken by the closing of the connections, and find the reason in the store.
  drop_all();
  if (transport_) {
    transport_->disconnect();
    transport_->leave();
  }
  transport_.reset();
  return first;
}

// The first rank to stop reports the reason as its own; the others learn it as AbortedByPeer.
void GlooCommunicator::stop(const std::string& reason) {
  throw_if_stopped();
  if (!set_reason(reason)) throw_if_stopped();
  throw Error(ErrorKind::kComm, *stopped_);
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

std::unique_ptr<Communicator> make_gloo_communicator(const GlooOptions& options) {
  return std::make_unique<GlooCommunicator>(options);
}

}  // namespace intarsia::comm
