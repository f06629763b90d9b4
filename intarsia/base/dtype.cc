#include "intarsia/base/dtype.h"

#include <array>

namespace intarsia {
namespace {

struct Row {
  DType dtype;
  std::size_t size;
  std::string_view safetensors;
};

constexpr std::array kRows{
    Row{DType::kF32, 4, "F32"},   Row{DType::kF16, 2, "F16"}, Row{DType::kBF16, 2, "BF16"}, Row{DType::kF64, 8, "F64"},
    Row{DType::kI8, 1, "I8"},     Row{DType::kU8, 1, "U8"},   Row{DType::kI16, 2, "I16"},   Row{DType::kU16, 2, "U16"},
    Row{DType::kI32, 4, "I32"},   Row{DType::kU32, 4, "U32"}, Row{DType::kI64, 8, "I64"},   Row{DType::kU64, 8, "U64"},
    Row{DType::kBool, 1, "BOOL"},
};

// kRows stands in the order of the enum.
constexpr const Row& row(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }
static_assert(row(DType::kBool).dtype == DType::kBool);

}  // namespace

std::size_t dtype_size(DType dtype) { return row(dtype).size; }

std::string_view safetensors_name(DType dtype) { return row(dtype).safetensors; }

std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  for (const Row& candidate : kRows)
    if (candidate.safetensors == name) return candidate.dtype;
  return std::nullopt;
}

std::string_view short_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
    default:
      return safetensors_name(dtype);
  }
}

}  // namespace intarsia
