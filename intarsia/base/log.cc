#include "intarsia/base/log.h"

#include <unistd.h>

#include <string>

namespace intarsia {
namespace {

void write_line(std::string_view label, std::string_view text) {
  std::string line("intarsia: ");
  line.append(label).append(text).append("\n");
  // A line that standard error does not take is lost: there is nowhere left to say so.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void log_note(std::string_view text) { write_line("", text); }
void log_warning(std::string_view text) { write_line("warning: ", text); }
void log_error(std::string_view text) { write_line("error: ", text); }

}  // namespace intarsia
