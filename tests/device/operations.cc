#include "operations.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "guarded_memory.h"

namespace intarsia::test_device {
namespace {

using c10::IValue;
using torch::jit::Stack;

constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

bool is_ours(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// A CPU tensor over the same bytes. Errors: that of data_ptr(), where a parameter has no memory.
at::Tensor seen_by_kernels(const at::Tensor& tensor) {
  if (!is_ours(tensor)) return tensor;
  const auto options = at::TensorOptions().dtype(tensor.dtype());
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(kernel_address(tensor.data_ptr()), tensor.sizes(), tensor.strides(), options);
}

at::Tensor to_device(const at::Tensor& made, c10::Device device) {
  if (!made.defined() || is_ours(made)) return made;
  const c10::DeviceGuard guard(device);
  at::Tensor ours =
      at::detail::empty_strided_generic(made.sizes(), made.strides(), &allocator(), kKeys, made.scalar_type());
  if (made.numel() > 0) seen_by_kernels(ours).copy_(made);
  return ours;
}

// One call of an operation that has no kernel of its own here.
class CpuCall {
 public:
  CpuCall(const c10::OperatorHandle& op, Stack& stack) : op_(op), stack_(stack) {}

  void run() {
    const auto& schema = op_.schema();
    begin_ = stack_.size() - schema.arguments().size();
    originals_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(begin_), stack_.end());
    for (std::size_t i = 0; i < originals_.size(); ++i) stack_[begin_ + i] = lower(originals_[i]);
    lowered_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(begin_), stack_.end());
    check_devices();
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    for (std::size_t i = 0; i < originals_.size(); ++i)
      if (const auto* alias = schema.arguments()[i].alias_info(); alias != nullptr && alias->isWrite())
        take_over_size(originals_[i], lowered_[i]);
    const std::size_t first = stack_.size() - schema.returns().size();
    for (std::size_t i = 0; i < schema.returns().size(); ++i)
      stack_[first + i] = raise(stack_[first + i], schema.returns()[i].alias_info());
  }

 private:
  at::Tensor lower_tensor(const at::Tensor& tensor) {
    if (is_ours(tensor)) {
      TORCH_CHECK(!device_ || *device_ == tensor.device(), op_.operator_name(), ": tensors on ", *device_, " and ",
                  tensor.device());
      device_ = tensor.device();
    } else if (tensor.defined() && tensor.dim() > 0) {
      on_host_ = true;
    }
    return seen_by_kernels(tensor);
  }

  IValue lower(const IValue& value) {
    if (value.isTensor()) return lower_tensor(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(lower_tensor(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional(lower_tensor(*tensor)) : std::nullopt);
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == kType) {
      if (!device_) device_ = value.toDevice();
      return c10::Device(c10::DeviceType::CPU);
    }
    return value;
  }

  // As on a real device: host tensors of one element only may stand beside those of the device.
  void check_devices() const {
    TORCH_CHECK(device_.has_value(), op_.operator_name(), ": no tensor on the test device");
    TORCH_CHECK(!on_host_, op_.operator_name(), ": expected all tensors on ", *device_, ", but found one on the CPU");
  }

  // An operation that writes to an output may give it another size.
  static void take_over_size(const IValue& original, const IValue& lowered) {
    if (!original.isTensor() || !is_ours(original.toTensor())) return;
    const at::Tensor tensor = original.toTensor(), written = lowered.toTensor();
    if (tensor.sizes() == written.sizes()) return;
    const at::Tensor fresh = to_device(written, tensor.device());
    at::Tensor(tensor).set_(fresh.storage(), 0, fresh.sizes(), fresh.strides());
  }

  IValue raise(const IValue& result, const c10::AliasInfo* alias) {
    if (alias != nullptr) {
      TORCH_CHECK(alias->isWrite(), op_.operator_name(), " makes a view: the test device needs it written by hand");
      const auto& arguments = op_.schema().arguments();
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        const auto* of_argument = arguments[i].alias_info();
        if (of_argument != nullptr && of_argument->beforeSets() == alias->beforeSets()) return originals_[i];
      }
      TORCH_CHECK(false, op_.operator_name(), ": no argument is what it returns");
    }
    if (result.isTensor()) return to_device(result.toTensor(), *device_);
    if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(to_device(tensor, *device_));
      return list;
    }
    return result;
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  std::size_t begin_ = 0;
  Stack originals_, lowered_;
  std::optional<c10::Device> device_;
  bool on_host_ = false;
};

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) { CpuCall(op, *stack).run(); }

c10::Device chosen(std::optional<c10::Device> device) {
  if (device && device->has_index()) return *device;
  return c10::impl::VirtualGuardImpl(kType).getDevice();
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(chosen(device));
  return at::detail::empty_generic(size, &allocator(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(chosen(device));
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys, c10::dtype_or_default(type));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  seen_by_kernels(to).copy_(seen_by_kernels(from));
  return to;
}

at::Scalar read_scalar(const at::Tensor& tensor) { return seen_by_kernels(tensor).item(); }

// Correctly rounded, as CUDA's is and the CPU's vector library is not.
at::Tensor exact_sqrt(const at::Tensor& tensor) {
  const at::Tensor in = seen_by_kernels(tensor).contiguous();
  if (in.scalar_type() != at::kFloat) return to_device(in.sqrt(), tensor.device());
  at::Tensor out = at::empty_like(in);
  const auto* from = in.const_data_ptr<float>();
  auto* to = out.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < in.numel(); ++i) to[i] = std::sqrt(from[i]);
  return to_device(out, tensor.device());
}

// For a device that it does not know torch would put some operations together from others, with other arithmetic.
bool has_kernel_of_the_cpu(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const auto is_tensor = [](const c10::Argument& argument) {
    return argument.type()->isSubtypeOf(*c10::TensorType::get());
  };
  const auto is_view = [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  };
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) &&
         std::ranges::any_of(schema.arguments(), is_tensor) && std::ranges::none_of(schema.returns(), is_view);
}

void take_kernels_of_the_cpu(torch::Library& aten) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::") || name.name == "aten::set_" || name.name == "aten::resize_") continue;
    if (!has_kernel_of_the_cpu(*op)) continue;
    const std::string own = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    aten.impl(own.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, std::int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(tensor, std::move(storage), offset, size, stride);
}

}  // namespace

void register_operations() {
  static torch::Library all(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("as_strided", &at::native::as_strided_tensorimpl);
  aten.impl("view", &at::native::view);
  aten.impl("_reshape_alias", &at::native::_reshape_alias);
  aten.impl("unfold", &at::native::unfold);
  aten.impl("set_.source_Storage_storage_offset", &set_storage);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_local_scalar_dense", &read_scalar);
  aten.impl("sqrt", &exact_sqrt);
  take_kernels_of_the_cpu(aten);
}

}  // namespace intarsia::test_device
