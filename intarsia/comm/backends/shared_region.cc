#include "intarsia/comm/backends/shared_region.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::comm {
namespace {

constexpr std::int64_t kPage = 4096;

std::int64_t page_up(std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

void* map_memfd(std::int64_t bytes) {
  rlimit limit{};
  // A file limit applies to memfds too, and exceeding it is a signal, not an error.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < static_cast<rlim_t>(bytes)) {
    fail(ErrorKind::kMemory, "shared memory of ", format_bytes(bytes), " is above the file size limit of this shell (",
         format_bytes(static_cast<std::int64_t>(limit.rlim_cur)), "): raise it with 'ulimit -f unlimited'");
  }
  const int fd = ::memfd_create("intarsia", MFD_CLOEXEC);
  INTARSIA_CHECK(kMemory, fd >= 0, "shared memory: memfd_create failed: ", std::strerror(errno));
  if (::ftruncate(fd, bytes) != 0) {
    const int error = errno;
    ::close(fd);
    fail(ErrorKind::kMemory, "shared memory of ", format_bytes(bytes), " refused: ", std::strerror(error));
  }
  void* base =
      ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  const int error = errno;
  ::close(fd);
  INTARSIA_CHECK(kMemory, base != MAP_FAILED, "shared memory of ", format_bytes(bytes),
                 " cannot be mapped: ", std::strerror(error), "; look at 'ulimit -v'");
  return base;
}

}  // namespace

std::shared_ptr<SharedRegion> SharedRegion::create(const RegionOptions& options) {
  INTARSIA_CHECK(kUsage, options.ranks >= 1 && options.ranks <= 1024, "ranks of one host: ", options.ranks,
                 " given, 1 to 1024 allowed");
  const std::int64_t ranks = options.ranks;
  std::int64_t heap_bytes = options.heap_limit_bytes;
  if (heap_bytes <= 0) heap_bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  heap_bytes = options.force_copy ? 0 : page_up(heap_bytes);

  const std::int64_t slots_at = page_up(sizeof(RegionControl));
  const std::int64_t channels_at = slots_at + page_up(ranks * static_cast<std::int64_t>(sizeof(RankSlot)));
  const std::int64_t staging_at = channels_at + page_up(ranks * ranks * static_cast<std::int64_t>(sizeof(Channel)));
  const std::int64_t heap_at = staging_at + 2 * ranks * kStagingBytes;

  std::shared_ptr<SharedRegion> region(new SharedRegion());
  region->options_ = options;
  region->heap_bytes_ = heap_bytes;
  region->mapped_bytes_ = heap_at + heap_bytes;
  region->base_ = map_memfd(region->mapped_bytes_);
  auto* base = static_cast<std::byte*>(region->base_);
  // Fresh pages are zero, which is the initial value of every field: nothing but the control block and the slots is
  // written, so that channels that nobody uses cost no page.
  region->control_ = new (base) RegionControl;
  region->slots_ = reinterpret_cast<RankSlot*>(base + slots_at);
  for (int rank = 0; rank < options.ranks; ++rank) new (&region->slots_[rank]) RankSlot;
  region->channels_ = reinterpret_cast<Channel*>(base + channels_at);
  region->staging_ = base + staging_at;
  region->heap_ = base + heap_at;
  region->spins_ = options.ranks <= available_cores() ? 2000 : 0;
  return region;
}

SharedRegion::~SharedRegion() {
  if (base_ != nullptr) ::munmap(base_, static_cast<std::size_t>(mapped_bytes_));
}

bool SharedRegion::reachable(const void* address, std::int64_t bytes) const {
  if (options_.force_copy) return false;
  if (!options_.process_ranks) return true;
  const auto* begin = static_cast<const std::byte*>(address);
  return begin >= heap_ && begin + bytes <= heap_ + heap_bytes_;
}

}  // namespace intarsia::comm
