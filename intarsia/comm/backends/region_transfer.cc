// send and recv of the threads and shm backends: a byte stream through a ring for each ordered pair of ranks.
#include <algorithm>
#include <cstring>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/comm/backends/checks.h"
#include "intarsia/comm/backends/futex.h"
#include "intarsia/comm/backends/region_communicator.h"

namespace intarsia::comm {

// A message is its descriptor followed by the tensor's bytes. `moved` counts both.
struct RegionCommunicator::Transfer {
  at::Tensor tensor;  // keeps the memory alive
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::int64_t moved = 0;
  int peer = 0;
  bool is_send = false;
  OpDescriptor descriptor;
  OpDescriptor received;
  bool done() const { return moved == bytes + static_cast<std::int64_t>(sizeof(OpDescriptor)); }
};

class TransferWork final : public Work {
 public:
  TransferWork(RegionCommunicator* communicator, std::shared_ptr<RegionCommunicator::Transfer> transfer)
      : communicator_(communicator), transfer_(std::move(transfer)) {}
  void wait() override { communicator_->wait_for(transfer_); }

 private:
  RegionCommunicator* communicator_;
  std::shared_ptr<RegionCommunicator::Transfer> transfer_;
};

std::unique_ptr<Work> RegionCommunicator::send(const at::Tensor& tensor, int to, const Tag& tag) {
  return start_transfer(tensor, to, true, tag);
}

std::unique_ptr<Work> RegionCommunicator::recv(const at::Tensor& tensor, int from, const Tag& tag) {
  return start_transfer(tensor, from, false, tag);
}

std::unique_ptr<Work> RegionCommunicator::start_transfer(const at::Tensor& tensor, int peer, bool is_send,
                                                         const Tag& tag) {
  const char* name = is_send ? "send" : "recv";
  check_tensor(tensor, name);
  check_peer(peer, rank_, size_, name);
  throw_if_aborted();
  auto transfer = std::make_shared<Transfer>();
  transfer->tensor = tensor;
  transfer->data = static_cast<std::byte*>(tensor.data_ptr());
  transfer->bytes = static_cast<std::int64_t>(tensor.nbytes());
  transfer->peer = peer;
  transfer->is_send = is_send;
  transfer->descriptor =
      make_descriptor(is_send ? Op::kSend : Op::kRecv, tag, tensor.numel(), static_cast<int>(tensor.scalar_type()));
  transfer->descriptor.sequence = ++sequence_;
  calls_.add(transfer->descriptor);
  (is_send ? sends_ : recvs_)[peer].push_back(transfer);
  ++pending_transfers_;
  progress_transfers();
  return std::make_unique<TransferWork>(this, std::move(transfer));
}

// Moves what can be moved now, in order within each direction of each pair. Returns whether anything moved.
bool RegionCommunicator::progress_transfers() {
  bool moved = false;
  for (auto* queues : {&sends_, &recvs_}) {
    for (auto& queue : *queues) {
      while (!queue.empty()) {
        const std::shared_ptr<Transfer> front = queue.front();
        if (progress(*front)) {
          moved = true;
          ring_doorbell(front->peer);
        }
        if (!front->done()) break;
        queue.pop_front();
        --pending_transfers_;
      }
    }
  }
  return moved;
}

bool RegionCommunicator::progress(Transfer& transfer) {
  Channel& channel = transfer.is_send ? region_->channel(rank_, transfer.peer) : region_->channel(transfer.peer, rank_);
  const std::int64_t before = transfer.moved;
  constexpr auto kHeader = static_cast<std::int64_t>(sizeof(OpDescriptor));
  while (!transfer.done()) {
    const std::uint64_t pushed = channel.pushed.load();
    const std::uint64_t popped = channel.popped.load();
    const std::uint64_t position = transfer.is_send ? pushed : popped;
    const auto available =
        static_cast<std::int64_t>(transfer.is_send ? kChannelBytes - (pushed - popped) : pushed - popped);
    const std::int64_t to_edge = kChannelBytes - static_cast<std::int64_t>(position % kChannelBytes);
    const bool header = transfer.moved < kHeader;
    const std::int64_t left = header ? kHeader - transfer.moved : kHeader + transfer.bytes - transfer.moved;
    const std::int64_t length = std::min({available, to_edge, left});
    if (length <= 0) break;
    std::byte* ring = channel.ring + position % kChannelBytes;
    if (transfer.is_send) {
      const std::byte* from = header ? reinterpret_cast<const std::byte*>(&transfer.descriptor) + transfer.moved
                                     : transfer.data + (transfer.moved - kHeader);
      std::memcpy(ring, from, static_cast<std::size_t>(length));
      channel.pushed.store(pushed + static_cast<std::uint64_t>(length));
    } else {
      std::byte* to = header ? reinterpret_cast<std::byte*>(&transfer.received) + transfer.moved
                             : transfer.data + (transfer.moved - kHeader);
      std::memcpy(to, ring, static_cast<std::size_t>(length));
      channel.popped.store(popped + static_cast<std::uint64_t>(length));
    }
    transfer.moved += length;
    if (header && transfer.moved == kHeader && !transfer.is_send) {
      OpDescriptor expected = transfer.received;
      expected.op = Op::kRecv;
      if (!same_operation(expected, transfer.descriptor)) {
        stop(concat("rank ", transfer.peer, " sent what rank ", rank_,
                    " does not expect: ", describe(transfer.received), " against ", describe(transfer.descriptor)));
      }
    }
  }
  return transfer.moved != before;
}

void RegionCommunicator::ring_doorbell(int peer) {
  RankSlot& slot = region_->slot(peer);
  slot.doorbell.fetch_add(1);
  if (slot.doorbell_sleeper.load() > 0) futex_wake_all(slot.doorbell);
}

void RegionCommunicator::wait_for(const std::shared_ptr<Transfer>& transfer) {
  RankSlot& slot = region_->slot(rank_);
  const auto start = Clock::now();
  const auto deadline = start + std::chrono::duration<double>(region_->options().timeout_seconds);
  while (!transfer->done()) {
    throw_if_aborted();
    const std::uint32_t seen = slot.doorbell.load();
    if (progress_transfers()) continue;
    if (transfer->done()) break;
    const RankSlot& peer = region_->slot(transfer->peer);
    // A rank that has left moves no more bytes; what it had pushed before is taken above.
    if (peer.state.load() == static_cast<std::uint32_t>(RankState::kLeft) && !progress_transfers()) {
      stop(concat("rank ", transfer->peer, " finished while rank ", rank_, " waited for it in ",
                  describe(transfer->descriptor), " #", transfer->descriptor.sequence));
    }
    if (Clock::now() >= deadline) {
      stop(concat("timed out after ", shortest(region_->options().timeout_seconds), " s in ",
                  describe(transfer->descriptor), " #", transfer->descriptor.sequence, " on rank ", rank_, " of ",
                  size_, transfer->is_send ? ": no matching recv on rank " : ": nothing sent by rank ",
                  transfer->peer));
    }
    slot.doorbell_sleeper.fetch_add(1);
    if (slot.doorbell.load() == seen) futex_wait(slot.doorbell, seen, std::chrono::milliseconds(50));
    slot.doorbell_sleeper.fetch_sub(1);
  }
  waited_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace intarsia::comm
