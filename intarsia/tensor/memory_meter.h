// Counts the bytes of c10's CPU allocator and of our mappings, by rank and category.
//
// Frees are booked to the rank and category that allocated. Scratch of oneDNN and MKL, code and stacks are not seen:
// plan adds them as one measured constant when it speaks of the operating system's limits. Threads: all functions may
// be called from any thread; the current rank and category belong to the calling thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace intarsia::tensor {

enum class MemoryCategory { kOther, kParams, kMasters, kGradients, kOptimizer, kGathered, kReduce, kData };
inline constexpr std::size_t kNumMemoryCategories = 8;
std::string_view category_name(MemoryCategory category);

struct MemoryReading {
  std::array<std::int64_t, kNumMemoryCategories> current{};  // bytes
  std::array<std::int64_t, kNumMemoryCategories> peak{};     // bytes, each category's own peak
  std::int64_t total = 0;
  std::int64_t total_peak = 0;

  std::int64_t operator[](MemoryCategory category) const { return current[static_cast<std::size_t>(category)]; }
};

// Wraps c10's CPU allocator, once for the process. Call before the first tensor that shall be counted.
void install_memory_meter();

// Ranks 0 to 255 are told apart; the calling thread's allocations go to `rank` from now on.
void set_memory_rank(int rank);

// What the calling thread's allocations are booked to, for allocators of other devices.
int memory_rank();
MemoryCategory memory_category();

MemoryReading read_memory(int rank);

// Sets the peaks of `rank` to the current values.
void reset_memory_peak(int rank);

// Books bytes that do not come from the allocator, such as a rank's shard of a shared mapping; negative to take back.
void book_memory(int rank, MemoryCategory category, std::int64_t bytes);

// While it lives, the calling thread's allocations count as `category`.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryCategory previous_;
};

// While it lives, the calling thread's allocations go to `rank`: autograd runs the backward of a device on a thread
// that no rank has named.
class MemoryRankScope {
 public:
  explicit MemoryRankScope(int rank) : previous_(memory_rank()) { set_memory_rank(rank); }
  ~MemoryRankScope() { set_memory_rank(previous_); }
  MemoryRankScope(const MemoryRankScope&) = delete;
  MemoryRankScope& operator=(const MemoryRankScope&) = delete;

 private:
  int previous_;
};

}  // namespace intarsia::tensor
