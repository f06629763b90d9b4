// The one exception type of Intarsia, its kinds, and the checks that throw it.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia {

// What went wrong, as far as the caller of a command can act on it. Each kind has one exit code (docs/errors.md).
enum class ErrorKind {
  kUsage,        // wrong command line
  kConfig,       // wrong or contradicting configuration
  kUnsupported,  // known, but not built: refused by name
  kMemory,       // does not fit, or an allocation failed
  kComm,         // a rank died, a collective timed out or mismatched
  kIo,           // the operating system refused: open, read, write, disk full
  kFormat,       // a file is not what it claims to be
  kData,         // training data cannot be used
  kNumeric,      // loss not finite
  kInternal,     // our own bug
};

// The process exit code of a kind: 2 for usage, config, unsupported; 3 memory; 4 comm; 5 io, format, data; 6 numeric;
// 1 internal.
int exit_code(ErrorKind kind);

// An error with a kind and the contexts that were added on its way up ("rank 2", "step 17").
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Joins its arguments as an ostream prints them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throws Error{kind, concat(parts...)}.
template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, concat(parts...));
}

}  // namespace intarsia

// The caller's or the world's fault: throws Error(kind) with the joined message unless cond holds.
#define INTARSIA_CHECK(kind, cond, ...)                                      \
  do {                                                                       \
    if (!(cond)) ::intarsia::fail(::intarsia::ErrorKind::kind, __VA_ARGS__); \
  } while (false)

// Our own fault: throws Error(kInternal) unless cond holds. Always on.
#define INTARSIA_INVARIANT(cond, ...)                                                                               \
  do {                                                                                                              \
    if (!(cond)) ::intarsia::fail(::intarsia::ErrorKind::kInternal, "internal error (", #cond, "): ", __VA_ARGS__); \
  } while (false)
