// The memory over which ranks of one host meet: created once, before the ranks exist, and inherited by all of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "intarsia/comm/op.h"

namespace intarsia::comm {

struct RegionOptions {
  int ranks = 1;
  bool process_ranks = true;     // ranks are forked processes (shm); false: threads of this process
  bool force_copy = false;       // no shared allocations, no reading of another rank's memory: as between hosts
  double timeout_seconds = 600;  // deadline of each operation
  // Most bytes that allocate_shared gives out in all; 0: the host's physical memory. Address space of this size is
  // reserved at once, pages are taken at first touch.
  std::int64_t heap_limit_bytes = 0;
};

// Note: layout of the region. Control block | one RankSlot per rank | one Channel per ordered pair of ranks | two
// staging buffers per rank | heap. All of it is one memfd mapping, sparse until touched, without a name in any file
// system, gone with the last process. Every rank has it at the same address (threads trivially, processes because they
// are forked after it exists), so that addresses inside it may be passed between ranks.

// Bytes of one staging buffer: what one round of a copying collective moves per rank. Larger saves rounds, smaller
// stays in the core's cache.
inline constexpr std::int64_t kStagingBytes = 512 * 1024;
// Bytes of the ring of one ordered pair of ranks, for send and recv.
inline constexpr std::int64_t kChannelBytes = 64 * 1024;

struct alignas(64) RegionControl {
  std::atomic<std::uint32_t> generation{0};  // last round that all ranks have reached; the futex word of all waiters
  std::atomic<std::uint32_t> sleepers{0};
  alignas(64) std::atomic<std::uint32_t> arrived{0};      // ranks that have reached the round after `generation`
  alignas(64) std::atomic<std::uint32_t> abort_state{0};  // 0: none, 1: reason being written, 2: reason readable
  char abort_reason[4096] = {};
  alignas(64) std::atomic<std::int64_t> heap_used{0};
};

enum class RankState : std::uint32_t { kAbsent, kPresent, kLeft };

struct alignas(64) RankSlot {
  std::atomic<std::uint32_t> round{0};  // last round this rank has reached
  std::atomic<std::uint32_t> state{0};  // RankState
  std::atomic<std::int32_t> pid{0};
  alignas(64) std::atomic<std::uint32_t> doorbell{0};  // bumped when a channel of this rank has moved
  std::atomic<std::uint32_t> doorbell_sleeper{0};
  // By parity of the round. A rank overwrites its entry of round r in round r + 2, and it can be there only when every
  // rank has reached round r + 1, that is, has finished reading round r.
  struct alignas(64) Published {
    OpDescriptor descriptor;
    const void* direct = nullptr;  // the rank's input, where every rank can read it; or null
    std::int64_t value = 0;
  } published[2];
};

struct alignas(64) Channel {
  std::atomic<std::uint64_t> pushed{0};              // bytes ever written, by the sender only
  alignas(64) std::atomic<std::uint64_t> popped{0};  // bytes ever read, by the receiver only
  alignas(64) std::byte ring[kChannelBytes];
};

class SharedRegion {
 public:
  // Errors: kMemory when the mapping or its size is refused; kUsage for ranks below 1 or above 1024.
  static std::shared_ptr<SharedRegion> create(const RegionOptions& options);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const RegionOptions& options() const { return options_; }
  RegionControl& control() const { return *control_; }
  RankSlot& slot(int rank) const { return slots_[rank]; }
  Channel& channel(int from, int to) const { return channels_[from * options_.ranks + to]; }
  std::byte* staging(int rank, int parity) const { return staging_ + (rank * 2 + parity) * kStagingBytes; }
  std::byte* heap() const { return heap_; }
  std::int64_t heap_limit_bytes() const { return heap_bytes_; }
  // Whether every rank can read `bytes` at `address`: threads everywhere, processes in the heap.
  bool reachable(const void* address, std::int64_t bytes) const;
  // Times to look again before sleeping: 0 when there are more ranks than cores, since looking then keeps the awaited
  // rank from running.
  int spins() const { return spins_; }

 private:
  SharedRegion() = default;

  RegionOptions options_;
  void* base_ = nullptr;
  std::int64_t mapped_bytes_ = 0;
  RegionControl* control_ = nullptr;
  RankSlot* slots_ = nullptr;
  Channel* channels_ = nullptr;
  std::byte* staging_ = nullptr;
  std::byte* heap_ = nullptr;
  std::int64_t heap_bytes_ = 0;
  int spins_ = 0;
};

}  // namespace intarsia::comm
