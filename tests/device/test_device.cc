// What torch asks of a device beside its operations: which one is current, streams, events, a generator. Everything
// is done when a call returns, so that there is one stream and events are always over.
#include "test_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <mutex>
#include <vector>

#include "guarded_memory.h"
#include "operations.h"

namespace intarsia::test_device {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
thread_local c10::DeviceIndex current = 0;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() >= 0 && device.index() < kNumDevices, "the test device has no ", device);
    current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return kNumDevices; }

  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return getStream(stream.device()); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  Hooks() {
    for (int index = 0; index < kNumDevices; ++index) generators_.push_back(at::detail::createCPUGenerator());
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kNumDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = device; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return std::exchange(current, device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void*) const override { return false; }
  at::Device getDeviceFromPtr(void*) const override { return {kType, current}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return generators_[static_cast<std::size_t>(device < 0 ? current : device)];
  }

 private:
  std::vector<at::Generator> generators_;
};

}  // namespace

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    static const Guard guard;
    static const c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
    static Hooks hooks;
    c10::SetAllocator(kType, &allocator());
    c10::register_privateuse1_backend("guarded");
    at::RegisterPrivateUse1HooksInterface(&hooks);
    register_operations();
  });
}

}  // namespace intarsia::test_device
