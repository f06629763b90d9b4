// Ctrl-C as a question that a loop can ask.
#pragma once

namespace intarsia::cli {

// Thrown to leave a loop after Ctrl-C, so that destructors remove what is half done. Not an Error: nothing went wrong.
struct Stopped {};

// What a command returns when it was stopped and kept nothing: 128 + SIGINT, as shells count.
inline constexpr int kStoppedExitCode = 130;

// While it lives, the first SIGINT or SIGTERM only sets a flag; the second ends the process as usual. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Throws Stopped after a signal. Threads: may be called at once.
  static void check();
};

}  // namespace intarsia::cli
