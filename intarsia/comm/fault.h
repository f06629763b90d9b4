// Makes an operation of one rank late or fail, to test what the others do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "intarsia/comm/intercept.h"

namespace intarsia::comm {

struct Fault {
  std::int64_t at_operation = 0;  // counted from 0 on this rank
  double delay_seconds = 0;
  std::optional<std::string> failure = std::nullopt;  // thrown as kComm with this message, after the delay
};

class FaultyCommunicator final : public InterceptingCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, Fault fault) : InterceptingCommunicator(inner), fault_(std::move(fault)) {}

 private:
  void before(Op op, std::int64_t bytes, const Tag& tag) override;
  Fault fault_;
  std::int64_t next_ = 0;
};

}  // namespace intarsia::comm
