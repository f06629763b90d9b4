#include "intarsia/nn/parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "intarsia/base/error.h"
#include "intarsia/tensor/dtype_map.h"

namespace intarsia::nn {
namespace {

c10::DataPtr window(void* data, c10::Device device) {
  return {data, nullptr, [](void*) {}, device};
}

c10::Storage storage_without_memory(std::int64_t numel, at::ScalarType type, c10::Device device) {
  const std::size_t bytes = static_cast<std::size_t>(numel) * c10::elementSize(type);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            window(nullptr, device), nullptr, false));
}

at::Tensor tensor_on(const c10::Storage& storage, at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(type).device(storage.device()));
  tensor.set_(storage, 0, shape);
  return tensor;
}

// Whether the leaf's storage holds this leaf and nothing else, in the order of its elements.
bool owns_its_storage(const at::Tensor& leaf, at::ScalarType type, c10::Device device) {
  return leaf.device() == device && leaf.scalar_type() == type && leaf.is_contiguous() && leaf.storage_offset() == 0 &&
         leaf.storage().nbytes() == leaf.nbytes();
}

}  // namespace

Parameters::Parameters(const plan::ModelSpec& model, DType compute_dtype, std::vector<std::vector<at::Tensor>> leaves,
                       c10::Device device)
    : leaves_(std::move(leaves)),
      storages_(model.params.size()),
      type_(tensor::scalar_type(compute_dtype)),
      device_(device) {
  INTARSIA_INVARIANT(leaves_.size() == model.params.size(), "leaves of ", leaves_.size(), " parameters for a model of ",
                     model.params.size());
  for (const plan::ParamSpec& spec : model.params) {
    shapes_.push_back(spec.shape);
    names_.push_back(spec.name);
    messages_.push_back(concat("parameter ", spec.name,
                               " was read while it was sharded: it is whole only inside its unit ",
                               model.units[static_cast<std::size_t>(spec.unit)].name));
  }
}

Parameters::Parameters(const plan::ModelSpec& model, DType compute_dtype, c10::Device device)
    : Parameters(model, compute_dtype, std::vector<std::vector<at::Tensor>>(model.params.size()), device) {
  const at::NoGradGuard no_grad;
  for (std::size_t param = 0; param < model.params.size(); ++param) {
    const plan::ParamSpec& spec = model.params[param];
    storages_[param] = storage_without_memory(spec.numel(), type_, device_);
    for (int use = 0; use < spec.uses; ++use) {
      at::Tensor leaf = tensor_on(storages_[param], spec.shape, type_);
      leaf.requires_grad_(!spec.frozen);
      leaves_[param].push_back(leaf);
    }
    detach(static_cast<int>(param));
  }
}

const at::Tensor& Parameters::leaf(int param, int use) const {
  return leaves_[static_cast<std::size_t>(param)][static_cast<std::size_t>(use)];
}

void Parameters::adopt(std::size_t param) {
  const at::NoGradGuard no_grad;
  const at::Tensor& first = leaves_[param][0];
  storages_[param] =
      owns_its_storage(first, type_, device_) ? first.storage() : storage_without_memory(first.numel(), type_, device_);
  for (at::Tensor& leaf : leaves_[param]) {
    leaf.mutable_grad().reset();
    if (leaf.storage().unsafeGetStorageImpl() == storages_[param].unsafeGetStorageImpl()) continue;
    // Not set_data, which refuses to turn a meta tensor into one with memory.
    leaf.unsafeGetTensorImpl()->shallow_copy_from(tensor_on(storages_[param], shapes_[param], type_).getIntrusivePtr());
  }
}

void Parameters::attach(int param, const at::Tensor& window_tensor) {
  c10::StorageImpl* storage = storages_[static_cast<std::size_t>(param)].unsafeGetStorageImpl();
  storage->clear_data_ptr_access_error_msg_();
  storage->set_data_ptr_noswap(window(window_tensor.data_ptr(), device_));
}

void Parameters::detach(int param) {
  const auto index = static_cast<std::size_t>(param);
  if (!storages_[index]) adopt(index);
  c10::StorageImpl* storage = storages_[index].unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(window(nullptr, device_));
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(messages_[index]);
}

void Parameters::check_not_replaced(int param) const {
  const auto index = static_cast<std::size_t>(param);
  for (const at::Tensor& leaf : leaves_[index])
    INTARSIA_CHECK(
        kUsage,
        leaf.has_storage() && leaf.storage().unsafeGetStorageImpl() == storages_[index].unsafeGetStorageImpl() &&
            leaf.sizes() == shapes_[index] && leaf.scalar_type() == type_,
        "parameter ", names_[index],
        " was replaced after wrapping (set_data, Module::to, ...): what it holds now is not what is trained. ",
        "Change parameters before they are wrapped");
}

}  // namespace intarsia::nn
