#include "intarsia/tensor/memory_meter.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "intarsia/base/error.h"

namespace intarsia::tensor {
namespace {

constexpr std::size_t kMaxRanks = 256;
// The header in front of each block keeps the 64-byte alignment that c10 promises.
constexpr std::size_t kHeaderBytes = 64;

struct Account {
  std::array<std::atomic<std::int64_t>, kNumMemoryCategories> current{};
  std::array<std::atomic<std::int64_t>, kNumMemoryCategories> peak{};
  std::atomic<std::int64_t> total{0};
  std::atomic<std::int64_t> total_peak{0};
};

std::array<Account, kMaxRanks> accounts;
thread_local std::size_t current_rank = 0;
thread_local auto current_category = MemoryCategory::kOther;

void raise_to(std::atomic<std::int64_t>& peak, std::int64_t value) {
  std::int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void book(std::size_t rank, std::size_t category, std::int64_t bytes) {
  Account& account = accounts[rank];
  const std::int64_t now = account.current[category].fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const std::int64_t total = account.total.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes > 0) {
    raise_to(account.peak[category], now);
    raise_to(account.total_peak, total);
  }
}

struct Header {
  std::size_t bytes;
  std::size_t rank;
  std::size_t category;
};

void free_metered(void* data) {
  if (data == nullptr) return;
  char* base = static_cast<char*>(data) - kHeaderBytes;
  Header header;
  std::memcpy(&header, base, sizeof(header));
  book(header.rank, header.category, -static_cast<std::int64_t>(header.bytes));
  c10::free_cpu(base);
}

class MeteredAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_metered, c10::Device(c10::DeviceType::CPU)};
    auto* base = static_cast<char*>(c10::alloc_cpu(bytes + kHeaderBytes));
    const Header header{bytes, current_rank, static_cast<std::size_t>(current_category)};
    std::memcpy(base, &header, sizeof(header));
    book(header.rank, header.category, static_cast<std::int64_t>(bytes));
    char* data = base + kHeaderBytes;
    return {data, data, &free_metered, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_metered; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

}  // namespace

std::string_view category_name(MemoryCategory category) {
  static constexpr std::array<std::string_view, kNumMemoryCategories> kNames{
      "other", "parameters", "masters", "gradients", "optimizer", "gathered", "reduce", "data"};
  return kNames[static_cast<std::size_t>(category)];
}

void install_memory_meter() {
  static MeteredAllocator allocator;
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&allocator, 1); });
}

void set_memory_rank(int rank) {
  INTARSIA_INVARIANT(rank >= 0, "memory rank ", rank);
  current_rank = static_cast<std::size_t>(rank) % kMaxRanks;
}

int memory_rank() { return static_cast<int>(current_rank); }
MemoryCategory memory_category() { return current_category; }

MemoryReading read_memory(int rank) {
  const Account& account = accounts[static_cast<std::size_t>(rank) % kMaxRanks];
  MemoryReading reading;
  for (std::size_t i = 0; i < kNumMemoryCategories; ++i) {
    reading.current[i] = account.current[i].load(std::memory_order_relaxed);
    reading.peak[i] = account.peak[i].load(std::memory_order_relaxed);
  }
  reading.total = account.total.load(std::memory_order_relaxed);
  reading.total_peak = account.total_peak.load(std::memory_order_relaxed);
  return reading;
}

void reset_memory_peak(int rank) {
  Account& account = accounts[static_cast<std::size_t>(rank) % kMaxRanks];
  for (std::size_t i = 0; i < kNumMemoryCategories; ++i) account.peak[i].store(account.current[i].load());
  account.total_peak.store(account.total.load());
}

void book_memory(int rank, MemoryCategory category, std::int64_t bytes) {
  book(static_cast<std::size_t>(rank) % kMaxRanks, static_cast<std::size_t>(category), bytes);
}

MemoryScope::MemoryScope(MemoryCategory category) : previous_(current_category) { current_category = category; }
MemoryScope::~MemoryScope() { current_category = previous_; }

}  // namespace intarsia::tensor
