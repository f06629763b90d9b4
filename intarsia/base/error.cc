#include "intarsia/base/error.h"

namespace intarsia {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig:
    case ErrorKind::kUnsupported:
      return 2;
    case ErrorKind::kMemory:
      return 3;
    case ErrorKind::kComm:
      return 4;
    case ErrorKind::kIo:
    case ErrorKind::kFormat:
    case ErrorKind::kData:
      return 5;
    case ErrorKind::kNumeric:
      return 6;
    case ErrorKind::kInternal:
      return 1;
  }
  return 1;
}

}  // namespace intarsia
