// Lines of standard input, as somebody types them.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace intarsia::cli {

// Reads descriptor 0 itself, not std::cin: a signal must end the waiting, also where handlers restart calls.
class LineReader {
 public:
  // `stop`: asked when a signal has come. On a terminal a mark is written to standard error before each line.
  explicit LineReader(std::function<bool()> stop);
  // The next line that has something else than spaces, without its end; none at the end of input or when stopped.
  // Errors: kIo.
  std::optional<std::string> next();

 private:
  bool fill();

  std::function<bool()> stop_;
  bool terminal_;
  bool ended_ = false;
  std::string held_;
};

}  // namespace intarsia::cli
