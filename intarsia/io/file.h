// Files: descriptors that close themselves, whole reads and writes, replacement that a crash cannot tear.
// Every function throws Error(kIo) with the operation, the path and the system's reason; a full disk also says how much
// is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia::io {

// Owns one descriptor; move only. Closing cannot report an error: who needs to know calls fsync_file() before.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();  // gives the descriptor up without closing it

 private:
  int fd_ = -1;
};

// The bytes of a text.
std::span<const std::byte> as_bytes(std::string_view text);

// Throws Error(kIo) "cannot OPERATION PATH: reason" for the system error `error` (an errno value).
[[noreturn]] void fail_io(std::string_view operation, const std::string& path, int error);

// Opens a regular file to read. A folder, a pipe or a device is refused, so that nothing can block or be unbounded.
Fd open_read(const std::string& path);

// Creates a file to write that must not exist yet (a link in its place counts as existing), mode 0644 less the umask.
Fd create_exclusive(const std::string& path);

// Opens an existing regular file to write; a link in its place is refused.
Fd open_write_existing(const std::string& path);

// Bytes of the open file, as the system says now.
std::uint64_t file_size(const Fd& fd, const std::string& path);

// Fills `out` from `offset`. Errors: kIo, also when the file ends before.
void read_exact_at(const Fd& fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out);

// Writes all of `bytes` at the descriptor's position.
void write_all(const Fd& fd, const std::string& path, std::span<const std::byte> bytes);

// Writes all of `bytes` at `offset`; the descriptor's position stays. Threads: safe for ranges that do not meet.
void write_all_at(const Fd& fd, const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes);

// Gives the file `size` bytes on disk, so that a full disk shows now and not in the middle of writing. Where the file
// system cannot reserve space the file only gets its length.
void preallocate(const Fd& fd, const std::string& path, std::uint64_t size);

// Returns when the file's bytes are on stable storage.
void fsync_file(const Fd& fd, const std::string& path);

// The same for a folder's list of names: after creating, renaming or removing files in it.
void fsync_directory(const std::string& path);

// Renames `from` to `to`, replacing a file there in one step. It is durable after fsync_directory() of the folder.
void rename_path(const std::string& from, const std::string& to);

// The folder that `path` lies in ("." when it names none).
std::string parent_directory(const std::string& path);

// The names in a folder, sorted. Errors: kIo when it is none or cannot be listed.
std::vector<std::string> list_directory(const std::string& path);

// All of a regular file. Errors: kIo; kFormat when it has more than `max_bytes`.
std::string read_text_file(const std::string& path, std::uint64_t max_bytes);

// Replaces `path` by a file with these bytes: a temporary beside it, fsync, rename, fsync of the folder. A reader, and
// whoever comes after a crash, finds the old bytes or the new ones, never a mixture.
void write_file_atomic(const std::string& path, std::span<const std::byte> bytes);
void write_file_atomic(const std::string& path, std::string_view text);

}  // namespace intarsia::io
