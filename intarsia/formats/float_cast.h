// Conversions between stored elements and fp32. Elements need not be aligned, because files do not align them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::formats {

// Whether a weight may have this dtype: F32, BF16, F16 and F64.
bool is_weight_dtype(DType dtype);

// Writes `count` elements of `dtype` that begin at `from` as fp32. F32, BF16 and F16 are exact, F64 is rounded to
// nearest. REQUIRES: is_weight_dtype(dtype).
void widen(const std::byte* from, DType dtype, std::int64_t count, float* out);

// The values as elements of `dtype` (F32, BF16 or F16), rounded to nearest, ties to even. `buffer` holds the result
// where a conversion is needed; the view ends with `values` or `buffer`. REQUIRES: one of these dtypes.
std::span<const std::byte> narrow(std::span<const float> values, DType dtype, std::vector<std::uint16_t>& buffer);

}  // namespace intarsia::formats
