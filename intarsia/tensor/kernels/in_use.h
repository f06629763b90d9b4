// A switch for tests and benches: the plain operations of ATen in place of our kernels, in the whole process.
#pragma once

#include <atomic>

namespace intarsia::tensor {

inline std::atomic<bool>& kernels_switch() {
  static std::atomic<bool> on = true;
  return on;
}
inline bool kernels_in_use() { return kernels_switch().load(std::memory_order_relaxed); }

// While it lives, models and matrix products are made of ATen's operations alone.
class PlainOperations {
 public:
  explicit PlainOperations(bool plain = true) : before_(kernels_switch().exchange(!plain)) {}
  ~PlainOperations() { kernels_switch() = before_; }
  PlainOperations(const PlainOperations&) = delete;
  PlainOperations& operator=(const PlainOperations&) = delete;

 private:
  bool before_;
};

}  // namespace intarsia::tensor
