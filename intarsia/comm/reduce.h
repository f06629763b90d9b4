// Sums and maxima over ranks, element by element, in rank order.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "intarsia/comm/communicator.h"

namespace intarsia::comm {

// dst[i] = sources[0][i] op sources[1][i] op ..., each step rounded to `dtype`. `dst` may be one of the sources; other
// overlaps are not allowed. Maxima propagate NaN. Memory: one block of scratch per thread.
void reduce_in_order(void* dst, const std::vector<const void*>& sources, std::int64_t count, c10::ScalarType dtype,
                     ReduceOp op);

}  // namespace intarsia::comm
