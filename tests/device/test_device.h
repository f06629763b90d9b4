// A device on which every operation of ATen runs, with the CPU's arithmetic, and whose memory the host cannot touch.
#pragma once

namespace intarsia::test_device {

// Registers it with torch as its device type PrivateUse1, once for the process; calls after the first do nothing. Call
// before the first backward: autograd starts its devices' threads then.
void install();

}  // namespace intarsia::test_device
