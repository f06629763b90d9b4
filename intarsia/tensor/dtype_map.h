// Intarsia's element types and torch's.
#pragma once

#include <c10/core/ScalarType.h>

#include "intarsia/base/dtype.h"

namespace intarsia::tensor {

at::ScalarType scalar_type(DType dtype);

// Errors: kUnsupported for types that Intarsia does not store.
DType dtype_of(at::ScalarType type);

}  // namespace intarsia::tensor
