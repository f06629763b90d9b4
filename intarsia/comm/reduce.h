// Sums and maxima over ranks, element by element, in one balanced binary tree.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "intarsia/comm/communicator.h"

namespace intarsia::comm {

// dst[i] = (((sources[0][i] op sources[1][i]) op (sources[2][i] op sources[3][i])) op ...): the balanced binary tree
// over the sources in their order, each node rounded to `dtype`. The tree over the ranks of a row, then over the rows'
// results, is the tree over all of them when both counts are powers of two: reproducible mode relies on that. `dst` may
// be one of the sources; other overlaps are not allowed. Maxima propagate NaN. Memory: 0.7 MB of scratch per thread.
void reduce_in_order(void* dst, const std::vector<const void*>& sources, std::int64_t count, c10::ScalarType dtype,
                     ReduceOp op);

}  // namespace intarsia::comm
