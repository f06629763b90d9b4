#include "intarsia/comm/recorder.h"

#include "intarsia/base/error.h"

namespace intarsia::comm {

void RecordingCommunicator::before(Op op, std::int64_t bytes, const Tag& tag) {
  records_.push_back({static_cast<std::int64_t>(records_.size()), op, tag.unit, tag.phase, bytes});
}

std::string RecordingCommunicator::text() const {
  std::string lines;
  for (const OpRecord& record : records_) {
    lines += concat(record.sequence, " ", op_name(record.op), " ", record.unit.empty() ? "-" : record.unit, " ",
                    record.phase.empty() ? "-" : record.phase, " ", record.bytes, "\n");
  }
  return lines;
}

}  // namespace intarsia::comm
