#include "intarsia/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::io {
namespace {

// One system call moves at most this much; Linux caps transfers just below 2 GiB.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

// O_NONBLOCK keeps open() from waiting for a pipe's other end; on regular files it does nothing.
Fd open_regular(const std::string& path, int flags, std::string_view operation) {
  Fd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) fail_io(operation, path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail_io("stat", path, errno);
  INTARSIA_CHECK(kIo, S_ISREG(info.st_mode), "cannot ", operation, " ", printable(path), ": it is not a regular file",
                 S_ISDIR(info.st_mode) ? " but a folder" : "");
  return fd;
}

off_t checked_offset(std::uint64_t offset, const std::string& path) {
  INTARSIA_CHECK(kIo, offset <= static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()), "offset ", offset,
                 " is beyond what a file can have: ", printable(path));
  return static_cast<off_t>(offset);
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

int Fd::release() { return std::exchange(fd_, -1); }

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

void fail_io(std::string_view operation, const std::string& path, int error) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) {
    struct statvfs info {};
    // The file itself may not exist (creating it failed); then its folder tells.
    if (::statvfs(path.c_str(), &info) == 0 || ::statvfs(parent_directory(path).c_str(), &info) == 0)
      hint = concat(" (", format_bytes(static_cast<std::int64_t>(info.f_bavail * info.f_frsize)),
                    " free there); make room or choose another folder");
  }
  fail(ErrorKind::kIo, "cannot ", operation, " ", printable(path), ": ", std::strerror(error), hint);
}

Fd open_read(const std::string& path) { return open_regular(path, O_RDONLY, "open"); }

Fd create_exclusive(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd.is_open()) fail_io("create", path, errno);
  return fd;
}

Fd open_write_existing(const std::string& path) { return open_regular(path, O_RDWR | O_NOFOLLOW, "open for writing"); }

std::uint64_t file_size(const Fd& fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail_io("stat", path, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

void read_exact_at(const Fd& fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out) {
  checked_offset(offset + out.size() < offset ? ~std::uint64_t{0} : offset + out.size(), path);
  while (!out.empty()) {
    const ssize_t got = ::pread(fd.get(), out.data(), std::min(out.size(), kMaxTransfer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path, errno);
    INTARSIA_CHECK(kIo, got > 0, "cannot read ", printable(path), ": it ends at byte ", offset, ", ", out.size(),
                   " bytes missing");
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void write_all(const Fd& fd, const std::string& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd.get(), bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void write_all_at(const Fd& fd, const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes) {
  checked_offset(offset + bytes.size() < offset ? ~std::uint64_t{0} : offset + bytes.size(), path);
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd.get(), bytes.data(), std::min(bytes.size(), kMaxTransfer), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io("write", path, errno);
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void preallocate(const Fd& fd, const std::string& path, std::uint64_t size) {
  const off_t length = checked_offset(size, path);
  if (length > 0) {
    int result = 0;
    do result = ::fallocate(fd.get(), 0, 0, length) == 0 ? 0 : errno;
    while (result == EINTR);
    if (result != 0 && result != EOPNOTSUPP && result != ENOSYS) fail_io("reserve space for", path, result);
  }
  if (::ftruncate(fd.get(), length) != 0) fail_io("set the length of", path, errno);
}

void fsync_file(const Fd& fd, const std::string& path) {
  if (::fsync(fd.get()) != 0) fail_io("flush", path, errno);
}

void fsync_directory(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) fail_io("open the folder", path, errno);
  // Some file systems have nothing to flush for a folder and say EINVAL.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail_io("flush the folder", path, errno);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    fail_io(concat("rename ", printable(from), " to"), to, error);
  }
}

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) fail_io("list the folder", path, error.value());
  std::ranges::sort(names);
  return names;
}

std::string read_text_file(const std::string& path, std::uint64_t max_bytes) {
  const Fd fd = open_read(path);
  const std::uint64_t size = file_size(fd, path);
  INTARSIA_CHECK(kFormat, size <= max_bytes, printable(path), " has ", size, " bytes; at most ", max_bytes,
                 " are read as such a file");
  std::string text(size, '\0');
  read_exact_at(fd, path, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_file_atomic(const std::string& path, std::span<const std::byte> bytes) {
  // The counter keeps threads of one process apart, the process id the processes.
  static std::atomic<unsigned> counter{0};
  const std::string temporary = concat(path, ".tmp-", ::getpid(), "-", counter.fetch_add(1));
  try {
    const Fd fd = create_exclusive(temporary);
    write_all(fd, temporary, bytes);
    fsync_file(fd, temporary);
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  fsync_directory(parent_directory(path));
}

void write_file_atomic(const std::string& path, std::string_view text) { write_file_atomic(path, as_bytes(text)); }

}  // namespace intarsia::io
