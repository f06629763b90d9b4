#include "guarded_memory.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "intarsia/tensor/memory_meter.h"

namespace intarsia::test_device {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{16} << 30;  // of addresses; memory is taken when it is first written
constexpr std::size_t kLeastBytes = 64;

// Blocks of powers of two, cut from the arena's end and kept for the next of their size.
class Arena {
 public:
  Arena() {
    const int file = ::memfd_create("test-device", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(kArenaBytes)) != 0) throw std::bad_alloc();
    guarded_ = map(file, PROT_NONE);
    open_ = map(file, PROT_READ | PROT_WRITE);
    ::close(file);
  }
  char* take(std::size_t bytes) {
    const std::size_t size = size_of(bytes);
    const std::lock_guard lock(mutex_);
    std::vector<char*>& free = free_[class_of(size)];
    char* block = nullptr;
    if (!free.empty()) {
      block = free.back();
      free.pop_back();
    } else {
      if (used_ + size > kArenaBytes) throw std::bad_alloc();
      block = guarded_ + used_;
      used_ += size;
    }
    std::memset(block + (open_ - guarded_), 0xff, bytes);
    return block;
  }
  void give_back(char* block, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    free_[class_of(size_of(bytes))].push_back(block);
  }
  bool holds(const char* data) const { return data >= guarded_ && data < guarded_ + kArenaBytes; }
  char* open_address(const char* data) const { return open_ + (data - guarded_); }

 private:
  static char* map(int file, int protection) {
    void* address = ::mmap(nullptr, kArenaBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (address == MAP_FAILED) throw std::bad_alloc();
    return static_cast<char*>(address);
  }
  static std::size_t size_of(std::size_t bytes) { return std::bit_ceil(std::max(bytes, kLeastBytes)); }
  static std::size_t class_of(std::size_t size) { return static_cast<std::size_t>(std::countr_zero(size)); }

  char* guarded_ = nullptr;
  char* open_ = nullptr;
  std::mutex mutex_;
  std::size_t used_ = 0;
  std::array<std::vector<char*>, 64> free_;
};

Arena& arena() {
  static auto* const one = new Arena();  // for ever: tensors may die after the statics
  return *one;
}

struct Block {
  char* data;
  std::size_t bytes;
  int rank;
  tensor::MemoryCategory category;
};

void free_block(void* context) {
  const auto* block = static_cast<Block*>(context);
  tensor::book_memory(block->rank, block->category, -static_cast<std::int64_t>(block->bytes));
  arena().give_back(block->data, block->bytes);
  delete block;
}

class GuardedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device = c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getDevice();
    if (bytes == 0) return {nullptr, device};
    auto* block = new Block{arena().take(bytes), bytes, tensor::memory_rank(), tensor::memory_category()};
    tensor::book_memory(block->rank, block->category, static_cast<std::int64_t>(bytes));
    return {block->data, block, &free_block, device};
  }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    std::memcpy(kernel_address(destination), kernel_address(source), bytes);
  }
};

}  // namespace

c10::Allocator& allocator() {
  static GuardedAllocator one;
  return one;
}

void* kernel_address(const void* data) { return arena().open_address(static_cast<const char*>(data)); }

bool is_guarded(const void* data) { return arena().holds(static_cast<const char*>(data)); }

}  // namespace intarsia::test_device
