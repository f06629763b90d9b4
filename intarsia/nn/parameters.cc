#include "intarsia/nn/parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "intarsia/base/error.h"
#include "intarsia/tensor/dtype_map.h"

namespace intarsia::nn {
namespace {

c10::DataPtr window(void* data) {
  return {data, nullptr, [](void*) {}, c10::Device(c10::DeviceType::CPU)};
}

}  // namespace

Parameters::Parameters(const plan::ModelSpec& model, DType compute_dtype) {
  const at::ScalarType type = tensor::scalar_type(compute_dtype);
  const at::NoGradGuard no_grad;
  for (const plan::ParamSpec& spec : model.params) {
    const auto bytes = static_cast<std::size_t>(spec.numel()) * dtype_size(compute_dtype);
    c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                               window(nullptr), nullptr, false));
    std::vector<at::Tensor> uses;
    for (int use = 0; use < spec.uses; ++use) {
      at::Tensor leaf = at::empty({0}, at::TensorOptions().dtype(type));
      leaf.set_(storage, 0, spec.shape);
      leaf.requires_grad_(!spec.frozen);
      uses.push_back(leaf);
    }
    leaves_.push_back(std::move(uses));
    messages_.push_back(concat("parameter ", spec.name,
                               " was read while it was sharded: it is whole only inside its unit ",
                               model.units[static_cast<std::size_t>(spec.unit)].name));
    detach(static_cast<int>(leaves_.size()) - 1);
  }
}

const at::Tensor& Parameters::leaf(int param, int use) const {
  return leaves_[static_cast<std::size_t>(param)][static_cast<std::size_t>(use)];
}

void Parameters::attach(int param, const at::Tensor& window_tensor) {
  c10::StorageImpl* storage = leaf(param).storage().unsafeGetStorageImpl();
  storage->clear_data_ptr_access_error_msg_();
  storage->set_data_ptr_noswap(window(window_tensor.data_ptr()));
}

void Parameters::detach(int param) {
  c10::StorageImpl* storage = leaf(param).storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(window(nullptr));
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(messages_[static_cast<std::size_t>(param)]);
}

}  // namespace intarsia::nn
