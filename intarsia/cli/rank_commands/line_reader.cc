#include "intarsia/cli/rank_commands/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <iostream>
#include <utility>

#include "intarsia/io/file.h"

namespace intarsia::cli {

LineReader::LineReader(std::function<bool()> stop) : stop_(std::move(stop)), terminal_(::isatty(STDIN_FILENO) == 1) {}

// Waits for more; false when there is none.
bool LineReader::fill() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (::poll(&input, 1, -1) < 0) {
    if (errno != EINTR) io::fail_io("wait for", "standard input", errno);
    if (stop_()) return false;
  }
  std::array<char, 4096> buffer{};
  const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (count < 0) io::fail_io("read", "standard input", errno);
  held_.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

std::optional<std::string> LineReader::next() {
  if (terminal_) std::cerr << "> " << std::flush;
  while (!stop_()) {
    const std::size_t end = held_.find('\n');
    if (end == std::string::npos && !ended_) {
      ended_ = !fill();
      continue;
    }
    if (held_.empty()) break;
    std::string line = held_.substr(0, end);
    held_.erase(0, end == std::string::npos ? end : end + 1);
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) return line;
  }
  if (terminal_) std::cerr << "\n";
  return std::nullopt;
}

}  // namespace intarsia::cli
