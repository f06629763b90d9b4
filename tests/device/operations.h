// The operations of the test device.
#pragma once

namespace intarsia::test_device {

// Few are written by hand: those that make memory, views and copies. All others run the CPU's kernel on the same bytes,
// with the same sizes and strides, so that they give the CPU's bits.
void register_operations();

}  // namespace intarsia::test_device
