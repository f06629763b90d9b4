// The device that a rank computes on. Everything that is asked of a device goes through c10's registries, so that this
// code is the same for all of them; what is built for CUDA only is a plugin (tensor/plugin.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "intarsia/base/device.h"

namespace intarsia::tensor {

c10::DeviceType device_type(DeviceKind kind);

// The calling thread's device of a kind: the one that use_device() chose on it, else the first. Threads: autograd runs
// the backward of each device on a thread of its own, and tells that thread its device.
c10::Device device_of(DeviceKind kind);

// Makes `index` the calling thread's device of its kind; loads the plugin of kCuda first. Call once on each rank's
// thread, before it allocates. Errors: kUnsupported where this program or host has no such device; kUsage where
// `index` is beyond the last one.
void use_device(DeviceKind kind, int index);

// Waits for all that the calling thread's device was told to do; nothing on the CPU, which never runs ahead.
void synchronize(DeviceKind kind);

// Most bytes that the calling thread's device has given out so far; 0 where tensor/memory_meter.h counts them.
std::int64_t device_peak_bytes(DeviceKind kind);

// The same values in host memory: the tensor itself when it is there.
at::Tensor on_host(const at::Tensor& tensor);

}  // namespace intarsia::tensor
