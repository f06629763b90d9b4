// Element types of tensors, without torch.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace intarsia {

enum class DType { kF32, kF16, kBF16, kF64, kI8, kU8, kI16, kU16, kI32, kU32, kI64, kU64, kBool };

// Bytes of one element.
std::size_t dtype_size(DType dtype);

// The name that safetensors headers use: "F32", "BF16", "I64", ...
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_from_safetensors_name(std::string_view name);

// The name that users type and read: "fp32", "bf16", "fp16"; other types by their safetensors name.
std::string_view short_name(DType dtype);

}  // namespace intarsia
