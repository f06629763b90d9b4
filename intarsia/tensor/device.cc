#include "intarsia/tensor/device.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "intarsia/base/error.h"
#include "intarsia/tensor/plugin.h"

namespace intarsia::tensor {
namespace {

const c10::impl::DeviceGuardImplInterface* registered(DeviceKind kind) {
  const auto type = static_cast<std::size_t>(device_type(kind));
  return c10::impl::device_guard_impl_registry[type].load();
}

}  // namespace

c10::DeviceType device_type(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return c10::DeviceType::CPU;
    case DeviceKind::kCuda:
      return c10::DeviceType::CUDA;
    case DeviceKind::kTest:
      return c10::DeviceType::PrivateUse1;
  }
  return c10::DeviceType::CPU;
}

c10::Device device_of(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return c10::Device(c10::DeviceType::CPU);
  return c10::impl::getDeviceGuardImpl(device_type(kind))->getDevice();
}

void use_device(DeviceKind kind, int index) {
  if (kind == DeviceKind::kCpu) return;
  // Errors of its own where the host has no driver; loading it registers the device with c10.
  if (kind == DeviceKind::kCuda) reinterpret_cast<void (*)()>(cuda_function("intarsia_cuda_check"))();
  const auto* guard = registered(kind);
  INTARSIA_CHECK(kUnsupported, guard != nullptr, "device ", device_name(kind), ": this program does not have it");
  const int count = guard->deviceCount();
  INTARSIA_CHECK(kUsage, index >= 0 && index < count, "rank ", index, " of this host has no device of its own: there ",
                 count == 1 ? "is " : "are ", count, " of kind ", device_name(kind), "; start at most ", count,
                 " ranks a host");
  guard->setDevice(c10::Device(device_type(kind), static_cast<c10::DeviceIndex>(index)));
}

void synchronize(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return;
  const c10::Device device = device_of(kind);
  registered(kind)->synchronizeDevice(device.index());
}

std::int64_t device_peak_bytes(DeviceKind kind) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device_type(kind)));
  if (kind == DeviceKind::kCpu || allocator == nullptr) return 0;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator->getDeviceStats(device_of(kind).index()).allocated_bytes[kAll].peak;
}

at::Tensor on_host(const at::Tensor& tensor) { return tensor.is_cpu() ? tensor : tensor.to(at::kCPU); }

}  // namespace intarsia::tensor
