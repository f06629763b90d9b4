// Writes down what a rank does, so that a test can compare it with what was planned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/comm/intercept.h"

namespace intarsia::comm {

struct OpRecord {
  std::int64_t sequence = 0;  // 0, 1, 2, ... on this rank
  Op op = Op::kBarrier;
  std::string unit;
  std::string phase;
  std::int64_t bytes = 0;  // of the tensor that holds the pieces of all ranks
  friend bool operator==(const OpRecord&, const OpRecord&) = default;
};

class RecordingCommunicator final : public InterceptingCommunicator {
 public:
  using InterceptingCommunicator::InterceptingCommunicator;
  const std::vector<OpRecord>& records() const { return records_; }
  void clear() { records_.clear(); }
  // "0 all_gather model.layers.0 gather 4096", a line for each operation.
  std::string text() const;

 private:
  void before(Op op, std::int64_t bytes, const Tag& tag) override;
  std::vector<OpRecord> records_;
};

}  // namespace intarsia::comm
