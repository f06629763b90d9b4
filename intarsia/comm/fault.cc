#include "intarsia/comm/fault.h"

#include <chrono>
#include <thread>

namespace intarsia::comm {

void FaultyCommunicator::before(Op op, std::int64_t /*bytes*/, const Tag& tag) {
  if (next_++ != fault_.at_operation) return;
  std::this_thread::sleep_for(std::chrono::duration<double>(fault_.delay_seconds));
  INTARSIA_CHECK(kComm, !fault_.failure, "injected in ", describe(make_descriptor(op, tag)), " on rank ", rank(), ": ",
                 *fault_.failure);
}

}  // namespace intarsia::comm
