// Memory of the test device.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace intarsia::test_device {

// How many devices there are: one for each rank of the largest run. Ranks that are threads must not share one, because
// autograd runs the backward of a device on one thread, where ranks would wait for each other for ever.
inline constexpr int kNumDevices = 16;

// Note: how it is guarded. One file in memory is mapped twice. Tensors point into the first mapping, which nobody may
// read or write: whoever follows a data pointer on the host gets SIGSEGV. Kernels use the same bytes through the second
// mapping, at a fixed distance. Protection never changes, so no other thread can slip through while a kernel runs.
// Fresh memory is filled with 0xff (NaN): memory that was never written is noticed.
c10::Allocator& allocator();

// Where kernels find what lies at `data`. REQUIRES: `data` points into the device's memory.
void* kernel_address(const void* data);

// Whether `data` points into the device's memory.
bool is_guarded(const void* data);

}  // namespace intarsia::test_device
