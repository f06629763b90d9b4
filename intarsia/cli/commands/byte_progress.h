// One line that says how far a pass over data is.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace intarsia::cli {

// On a terminal one line of standard error, redrawn up to ten times a second; elsewhere a plain line every ten seconds.
// Threads: update() may be called at once.
class ByteProgress {
 public:
  // `what`: "reading", "tokenizing"; `total`: bytes of the whole pass.
  ByteProgress(std::string what, std::int64_t total);
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  // `done` of the bytes are read.
  void update(std::int64_t done);
  // Removes the line, so that other output can follow.
  void clear();

  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string line(std::int64_t done) const;

  std::string what_;
  std::int64_t total_;
  bool is_terminal_;
  bool is_drawn_ = false;
  Clock::time_point start_, next_;
  std::mutex mutex_;
};

// "12.3 MB/s".
std::string byte_rate(std::int64_t bytes, double seconds);

}  // namespace intarsia::cli
