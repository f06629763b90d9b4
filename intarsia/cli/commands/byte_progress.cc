#include "intarsia/cli/commands/byte_progress.h"

#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <utility>

#include "intarsia/base/text.h"

namespace intarsia::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLine = std::chrono::seconds(10);
constexpr int kBarWidth = 24;

}  // namespace

std::string byte_rate(std::int64_t bytes, double seconds) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / 1e6 / std::max(seconds, 1e-6) << " MB/s";
  return out.str();
}

ByteProgress::ByteProgress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), is_terminal_(::isatty(STDERR_FILENO) == 1), start_(Clock::now()) {
  // A short pass needs no line.
  next_ = start_ + (is_terminal_ ? std::chrono::milliseconds(kRedraw) : std::chrono::milliseconds(kPlainLine));
}

ByteProgress::~ByteProgress() { clear(); }

double ByteProgress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

std::string ByteProgress::line(std::int64_t done) const {
  const double share = total_ > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total_)) : 1.0;
  const double elapsed = seconds();
  std::ostringstream out;
  out << what_ << " ";
  if (is_terminal_) {
    const int filled = static_cast<int>(share * kBarWidth);
    out << "[" << std::string(static_cast<std::size_t>(filled), '#')
        << std::string(static_cast<std::size_t>(kBarWidth - filled), '.') << "] ";
  }
  out << static_cast<int>(share * 100) << " %  " << format_bytes(done) << " of " << format_bytes(total_) << "  "
      << byte_rate(done, elapsed);
  if (share > 0) out << "  " << static_cast<std::int64_t>(elapsed * (1 - share) / share + 0.5) << " s left";
  return out.str();
}

void ByteProgress::update(std::int64_t done) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  // Whoever does not get the lock has nothing newer to say than who has it.
  if (!lock.owns_lock() || Clock::now() < next_) return;
  next_ = Clock::now() + (is_terminal_ ? std::chrono::milliseconds(kRedraw) : std::chrono::milliseconds(kPlainLine));
  if (is_terminal_) {
    std::cerr << "\r\033[K" << line(done) << std::flush;
    is_drawn_ = true;
  } else {
    std::cerr << "intarsia: " << line(done) << std::endl;
  }
}

void ByteProgress::clear() {
  const std::lock_guard lock(mutex_);
  if (is_drawn_) std::cerr << "\r\033[K" << std::flush;
  is_drawn_ = false;
}

}  // namespace intarsia::cli
