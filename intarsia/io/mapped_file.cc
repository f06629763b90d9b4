#include "intarsia/io/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::io {

MappedFile MappedFile::open(const std::string& path) { return map(open_read(path), path); }

MappedFile MappedFile::map(Fd fd, std::string path) {
  MappedFile file;
  file.fd_ = std::move(fd);
  file.path_ = std::move(path);
  file.size_ = file_size(file.fd_, file.path_);
  if (file.size_ > 0) {  // mmap refuses a length of zero
    void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, file.fd_.get(), 0);
    if (data == MAP_FAILED) {
      file.size_ = 0;
      fail_io("map", file.path_, errno);
    }
    file.data_ = static_cast<const std::byte*>(data);
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
}

std::span<const std::byte> MappedFile::view(std::uint64_t offset, std::uint64_t count) const {
  INTARSIA_CHECK(kIo, offset <= size_ && count <= size_ - offset, printable(path_), ": bytes ", offset, " + ", count,
                 " lie outside the file of ", size_, " bytes");
  return bytes().subspan(offset, count);
}

void MappedFile::check_unchanged() const {
  const std::uint64_t now = file_size(fd_, path_);
  INTARSIA_CHECK(kIo, now == size_, printable(path_), " changed while it was open: it had ", size_, " bytes and has ",
                 now, " now");
}

}  // namespace intarsia::io
