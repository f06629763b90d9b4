// Collectives of the threads and shm backends.
//
// Small tensors, and all tensors when copying is forced, go through the staging buffers. Large ones whose memory every
// rank can reach are read where they lie.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/comm/backends/checks.h"
#include "intarsia/comm/backends/region_communicator.h"
#include "intarsia/comm/reduce.h"

namespace intarsia::comm {
namespace {

class DoneWork final : public Work {
 public:
  void wait() override {}
};

std::unique_ptr<Work> done() { return std::make_unique<DoneWork>(); }

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Elements of rank `rank` when `count` are divided as evenly as can be.
struct Part {
  std::int64_t begin;
  std::int64_t length;
};
Part part_of(std::int64_t count, int rank, int size) {
  const std::int64_t share = (count + size - 1) / size;
  const std::int64_t begin = std::min(count, share * rank);
  return {begin, std::min(share, count - begin)};
}

}  // namespace

template <typename Fill, typename Drain>
void RegionCommunicator::in_rounds(const OpDescriptor& descriptor, std::int64_t count, std::int64_t step, Fill fill,
                                   Drain drain) {
  std::int64_t begin = 0;
  do {
    const std::int64_t length = std::min(step, count - begin);
    fill(begin, length, next_staging());
    meet(descriptor, nullptr, 0, begin == 0);
    drain(begin, length);
    begin += length;
  } while (begin < count);
}

std::unique_ptr<Work> RegionCommunicator::all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  check_pieces(out, in, size_, "all_gather");
  const std::int64_t bytes = static_cast<std::int64_t>(in.nbytes());
  const OpDescriptor descriptor = make_descriptor(Op::kAllGather, tag, in.numel(), static_cast<int>(in.scalar_type()));
  begin_operation(descriptor);
  std::byte* to = bytes_of(out);
  const std::byte* from = bytes_of(in);
  if (size_ == 1) {
    copy_bytes(to, from, bytes);
    return done();
  }
  if (bytes > kStagingBytes) {
    meet(descriptor, region_->reachable(from, bytes) ? from : nullptr, 0, true);
    if (all_direct()) {
      std::vector<const void*> sources(size_);
      for (int peer = 0; peer < size_; ++peer) sources[peer] = published(peer).direct;
      for (int peer = 0; peer < size_; ++peer) copy_bytes(to + peer * bytes, sources[peer], bytes);
      meet(descriptor, nullptr, 0, false);
      return done();
    }
  }
  in_rounds(
      descriptor, bytes, kStagingBytes,
      [&](std::int64_t begin, std::int64_t length, std::byte* mine) { copy_bytes(mine, from + begin, length); },
      [&](std::int64_t begin, std::int64_t length) {
        for (int peer = 0; peer < size_; ++peer) copy_bytes(to + peer * bytes + begin, staged(peer), length);
      });
  return done();
}

std::unique_ptr<Work> RegionCommunicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  check_pieces(in, out, size_, "reduce_scatter");
  const c10::ScalarType dtype = in.scalar_type();
  const std::int64_t count = out.numel();
  const std::int64_t item = static_cast<std::int64_t>(in.element_size());
  const OpDescriptor descriptor = make_descriptor(Op::kReduceScatter, tag, count, static_cast<int>(dtype));
  begin_operation(descriptor);
  std::byte* to = bytes_of(out);
  const std::byte* from = bytes_of(in);
  if (size_ == 1) {
    copy_bytes(to, from, count * item);
    return done();
  }
  std::vector<const void*> sources(size_);
  if (count * item * size_ > kStagingBytes) {
    meet(descriptor, region_->reachable(from, count * item * size_) ? from : nullptr, 0, true);
    if (all_direct()) {
      for (int peer = 0; peer < size_; ++peer) {
        sources[peer] = static_cast<const std::byte*>(published(peer).direct) + rank_ * count * item;
      }
      // `out` may be this rank's piece of its own `in`: nobody else reads that piece.
      reduce_in_order(to, sources, count, dtype, ReduceOp::kSum);
      meet(descriptor, nullptr, 0, false);
      return done();
    }
  }
  const std::int64_t step = kStagingBytes / (item * size_);
  in_rounds(
      descriptor, count, step,
      [&](std::int64_t begin, std::int64_t length, std::byte* mine) {
        for (int piece = 0; piece < size_; ++piece) {
          copy_bytes(mine + piece * length * item, from + (piece * count + begin) * item, length * item);
        }
      },
      [&](std::int64_t begin, std::int64_t length) {
        for (int peer = 0; peer < size_; ++peer) sources[peer] = staged(peer) + rank_ * length * item;
        reduce_in_order(to + begin * item, sources, length, dtype, ReduceOp::kSum);
      });
  return done();
}

std::unique_ptr<Work> RegionCommunicator::all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) {
  check_tensor(tensor, "all_reduce");
  const c10::ScalarType dtype = tensor.scalar_type();
  const std::int64_t count = tensor.numel();
  const std::int64_t item = static_cast<std::int64_t>(tensor.element_size());
  const OpDescriptor descriptor =
      make_descriptor(Op::kAllReduce, tag, count, static_cast<int>(dtype), static_cast<int>(op));
  begin_operation(descriptor);
  if (size_ == 1) return done();
  std::byte* data = bytes_of(tensor);
  std::vector<const void*> sources(size_);
  // Below this size every rank adds everything itself, in one round; above it each adds a part and gathers the rest.
  constexpr std::int64_t kAddAllBytes = 16 * 1024;
  const bool large = count * item > kAddAllBytes;
  if (count * item > kStagingBytes) {
    meet(descriptor, region_->reachable(data, count * item) ? data : nullptr, 0, true);
    if (all_direct()) {
      std::vector<std::byte*> peers(size_);
      for (int peer = 0; peer < size_; ++peer) {
        peers[peer] = static_cast<std::byte*>(const_cast<void*>(published(peer).direct));
      }
      const Part mine = part_of(count, rank_, size_);
      for (int peer = 0; peer < size_; ++peer) sources[peer] = peers[peer] + mine.begin * item;
      reduce_in_order(data + mine.begin * item, sources, mine.length, dtype, op);
      meet(descriptor, nullptr, 0, false);
      for (int peer = 0; peer < size_; ++peer) {
        const Part part = part_of(count, peer, size_);
        copy_bytes(data + part.begin * item, peers[peer] + part.begin * item, part.length * item);
      }
      meet(descriptor, nullptr, 0, false);
      return done();
    }
  }
  in_rounds(
      descriptor, count, kStagingBytes / item,
      [&](std::int64_t begin, std::int64_t length, std::byte* mine) {
        copy_bytes(mine, data + begin * item, length * item);
      },
      [&](std::int64_t begin, std::int64_t length) {
        std::byte* to = data + begin * item;
        const Part mine = large ? part_of(length, rank_, size_) : Part{0, length};
        for (int peer = 0; peer < size_; ++peer) sources[peer] = staged(peer) + mine.begin * item;
        reduce_in_order(to + mine.begin * item, sources, mine.length, dtype, op);
        if (!large) return;
        copy_bytes(next_staging(), to + mine.begin * item, mine.length * item);
        meet(descriptor, nullptr, 0, false);
        for (int peer = 0; peer < size_; ++peer) {
          const Part part = part_of(length, peer, size_);
          copy_bytes(to + part.begin * item, staged(peer), part.length * item);
        }
      });
  return done();
}

std::unique_ptr<Work> RegionCommunicator::broadcast(const at::Tensor& tensor, int root, const Tag& tag) {
  check_tensor(tensor, "broadcast");
  INTARSIA_INVARIANT(root >= 0 && root < size_, "broadcast from rank ", root, " of ", size_);
  const std::int64_t bytes = static_cast<std::int64_t>(tensor.nbytes());
  const OpDescriptor descriptor =
      make_descriptor(Op::kBroadcast, tag, tensor.numel(), static_cast<int>(tensor.scalar_type()), root);
  begin_operation(descriptor);
  if (size_ == 1) return done();
  std::byte* data = bytes_of(tensor);
  if (bytes > kStagingBytes) {
    meet(descriptor, region_->reachable(data, bytes) ? data : nullptr, 0, true);
    const void* source = published(root).direct;
    if (source != nullptr) {
      copy_bytes(data, source, bytes);
      meet(descriptor, nullptr, 0, false);
      return done();
    }
  }
  in_rounds(
      descriptor, bytes, kStagingBytes,
      [&](std::int64_t begin, std::int64_t length, std::byte* mine) {
        if (rank_ == root) copy_bytes(mine, data + begin, length);
      },
      [&](std::int64_t begin, std::int64_t length) {
        if (rank_ != root) copy_bytes(data + begin, staged(root), length);
      });
  return done();
}

std::unique_ptr<Work> RegionCommunicator::all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  check_exchange(out, in, size_);
  const std::int64_t piece = static_cast<std::int64_t>(in.nbytes()) / size_;
  const OpDescriptor descriptor = make_descriptor(Op::kAllToAll, tag, in.numel(), static_cast<int>(in.scalar_type()));
  begin_operation(descriptor);
  std::byte* to = bytes_of(out);
  const std::byte* from = bytes_of(in);
  if (size_ == 1) {
    copy_bytes(to, from, piece);
    return done();
  }
  if (piece * size_ > kStagingBytes) {
    meet(descriptor, region_->reachable(from, piece * size_) ? from : nullptr, 0, true);
    if (all_direct()) {
      std::vector<const std::byte*> sources(size_);
      for (int peer = 0; peer < size_; ++peer) sources[peer] = static_cast<const std::byte*>(published(peer).direct);
      for (int peer = 0; peer < size_; ++peer) copy_bytes(to + peer * piece, sources[peer] + rank_ * piece, piece);
      meet(descriptor, nullptr, 0, false);
      return done();
    }
  }
  in_rounds(
      descriptor, piece, kStagingBytes / size_,
      [&](std::int64_t begin, std::int64_t length, std::byte* mine) {
        for (int peer = 0; peer < size_; ++peer) copy_bytes(mine + peer * length, from + peer * piece + begin, length);
      },
      [&](std::int64_t begin, std::int64_t length) {
        for (int peer = 0; peer < size_; ++peer)
          copy_bytes(to + peer * piece + begin, staged(peer) + rank_ * length, length);
      });
  return done();
}

void RegionCommunicator::barrier(const Tag& tag) {
  const OpDescriptor descriptor = make_descriptor(Op::kBarrier, tag);
  begin_operation(descriptor);
  if (size_ > 1) meet(descriptor, nullptr, 0, true);
}

namespace {

constexpr std::int64_t kPage = 4096;

// Stands in front of each allocation: when the last rank lets go of it, its pages return to the system. Addresses are
// not given out again, so that fresh memory is always zero.
struct alignas(64) HeapHeader {
  std::atomic<std::int32_t> users;
};

class HeapMemory final : public SharedMemory {
 public:
  HeapMemory(std::shared_ptr<SharedRegion> region, std::byte* base, std::int64_t bytes)
      : region_(std::move(region)), base_(base), bytes_(bytes) {}
  ~HeapMemory() override {
    auto* header = reinterpret_cast<HeapHeader*>(base_);
    if (header->users.fetch_add(1) + 1 == region_->options().ranks) {
      ::madvise(base_, static_cast<std::size_t>((bytes_ + sizeof(HeapHeader) + kPage - 1) / kPage * kPage),
                MADV_REMOVE);
    }
  }
  void* data() const override { return base_ + sizeof(HeapHeader); }
  std::int64_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<SharedRegion> region_;
  std::byte* base_;
  std::int64_t bytes_;
};

}  // namespace

std::unique_ptr<SharedMemory> RegionCommunicator::allocate_shared(std::int64_t bytes) {
  INTARSIA_INVARIANT(bytes >= 0, "allocate_shared of ", bytes, " bytes");
  if (region_->options().force_copy) return nullptr;
  const OpDescriptor descriptor = make_descriptor(Op::kAllocateShared, Tag{}, bytes);
  begin_operation(descriptor);
  RegionControl& control = region_->control();
  const std::int64_t limit = region_->heap_limit_bytes();
  std::int64_t offset = -1;
  if (rank_ == 0 && bytes <= limit - static_cast<std::int64_t>(sizeof(HeapHeader))) {
    const std::int64_t needed = (bytes + static_cast<std::int64_t>(sizeof(HeapHeader)) + kPage - 1) / kPage * kPage;
    if (control.heap_used.load() + needed <= limit) offset = control.heap_used.fetch_add(needed);
  }
  if (size_ > 1) {
    meet(descriptor, nullptr, offset, true);
    offset = published(0).value;
  }
  INTARSIA_CHECK(kMemory, offset >= 0, "shared memory of ", size_, " ranks: ", format_bytes(bytes), " asked for, ",
                 format_bytes(control.heap_used.load()), " of ", format_bytes(limit),
                 " in use. Use fewer or smaller buffers (a higher ZeRO stage, a smaller model), or raise the limit");
  return std::make_unique<HeapMemory>(region_, region_->heap() + offset, bytes);
}

}  // namespace intarsia::comm
