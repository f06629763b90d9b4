// Where a rank computes, without torch.
#pragma once

namespace intarsia {

// kTest: a device whose memory the host cannot touch, in programs that link tests/device.
enum class DeviceKind { kCpu, kCuda, kTest };

// The name that users type and read.
constexpr const char* device_name(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? "cpu" : kind == DeviceKind::kCuda ? "cuda" : "test";
}

}  // namespace intarsia
