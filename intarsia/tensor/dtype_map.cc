#include "intarsia/tensor/dtype_map.h"

#include <array>
#include <utility>

#include "intarsia/base/error.h"

namespace intarsia::tensor {
namespace {

constexpr std::array kPairs{
    std::pair{DType::kF32, at::kFloat},  std::pair{DType::kF16, at::kHalf},   std::pair{DType::kBF16, at::kBFloat16},
    std::pair{DType::kF64, at::kDouble}, std::pair{DType::kI8, at::kChar},    std::pair{DType::kU8, at::kByte},
    std::pair{DType::kI16, at::kShort},  std::pair{DType::kU16, at::kUInt16}, std::pair{DType::kI32, at::kInt},
    std::pair{DType::kU32, at::kUInt32}, std::pair{DType::kI64, at::kLong},   std::pair{DType::kU64, at::kUInt64},
    std::pair{DType::kBool, at::kBool},
};

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  for (const auto& [ours, torchs] : kPairs)
    if (ours == dtype) return torchs;
  fail(ErrorKind::kInternal, "no torch type for dtype ", static_cast<int>(dtype));
}

DType dtype_of(at::ScalarType type) {
  for (const auto& [ours, torchs] : kPairs)
    if (torchs == type) return ours;
  fail(ErrorKind::kUnsupported, "tensors of type ", c10::toString(type), " are not supported");
}

}  // namespace intarsia::tensor
