// Lines for people, on standard error. Metrics and results go elsewhere.
#pragma once

#include <string_view>

namespace intarsia {

// Prints "intarsia: TEXT" on standard error, in one write, so that lines of several ranks never mix.
void log_note(std::string_view text);

// Prints "intarsia: warning: TEXT" on standard error, in one write.
void log_warning(std::string_view text);

// Prints "intarsia: error: TEXT" on standard error, in one write.
void log_error(std::string_view text);

}  // namespace intarsia
