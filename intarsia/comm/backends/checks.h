// What every backend demands of the tensors it is given.
#pragma once

#include <ATen/core/Tensor.h>

#include "intarsia/base/error.h"

namespace intarsia::comm {

inline void check_tensor(const at::Tensor& tensor, const char* op) {
  INTARSIA_INVARIANT(tensor.defined() && tensor.is_contiguous() && tensor.device().is_cpu(), op,
                     " needs a defined, contiguous CPU tensor");
}

// `large` holds one piece of the size of `small` for each rank.
inline void check_pieces(const at::Tensor& large, const at::Tensor& small, int ranks, const char* op) {
  check_tensor(large, op);
  check_tensor(small, op);
  INTARSIA_INVARIANT(large.scalar_type() == small.scalar_type() && large.numel() == small.numel() * ranks, op, " of ",
                     ranks, " ranks: tensors of ", large.numel(), " and ", small.numel(),
                     " elements; the larger must have one piece for each rank, in the same dtype");
}

// Equal tensors of a whole piece for each rank.
inline void check_exchange(const at::Tensor& out, const at::Tensor& in, int ranks) {
  check_tensor(out, "all_to_all");
  check_tensor(in, "all_to_all");
  INTARSIA_INVARIANT(out.numel() == in.numel() && out.scalar_type() == in.scalar_type(), "all_to_all of ", in.numel(),
                     " elements into ", out.numel(), "; equal sizes and dtypes are needed");
  INTARSIA_INVARIANT(in.numel() % ranks == 0, "all_to_all: ", in.numel(), " elements do not divide into ", ranks,
                     " pieces");
}

inline void check_peer(int peer, int rank, int size, const char* op) {
  INTARSIA_INVARIANT(peer >= 0 && peer < size && peer != rank, op, ": rank ", peer, " given to rank ", rank, " of ",
                     size, "; another rank of the axis is needed");
}

}  // namespace intarsia::comm
