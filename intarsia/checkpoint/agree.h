// Steps that all ranks take together or not at all.
#pragma once

#include <functional>
#include <string>

#include "intarsia/comm/communicator.h"

namespace intarsia::checkpoint {

// Runs `local` on this rank and returns when it has succeeded on all. `local` makes no call to other ranks.
// Collective. Errors: if it threw on some ranks, an Error on every rank, of the lowest failing rank's kind (kIo for
// what is no Error): "WHAT: rank R: its message".
void all_or_none(comm::Communicator& axis, const std::string& what, const std::function<void()>& local);

// The text of rank 0, on every rank. Collective.
std::string broadcast_text(comm::Communicator& axis, const std::string& text);

}  // namespace intarsia::checkpoint
