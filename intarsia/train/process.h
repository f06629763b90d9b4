// What the operating system says about this process, and what it asks of it.
#pragma once

#include <cstdint>

namespace intarsia::train {

// Proportional set size of this process in bytes: shared pages are divided among those who map them. 0 when unknown.
std::int64_t pss_bytes();

// From now on the first SIGINT or SIGTERM only sets what stop_requested() returns; the second one ends the process with
// exit code 130. Called once in each rank.
void catch_stop_signals();
bool stop_requested();

}  // namespace intarsia::train
