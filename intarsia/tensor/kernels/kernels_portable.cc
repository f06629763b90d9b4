// For processors without AVX2: four lanes, which compilers know everywhere.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "intarsia/tensor/kernels/kernel_set.h"

#define INTARSIA_SET "portable"
#define INTARSIA_SET_FUNCTION portable_kernels
#define INTARSIA_LANES 4
#include "intarsia/tensor/kernels/set_body.h"
