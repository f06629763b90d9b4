// Products are seen where autograd has already noted their inputs and before a device's kernel runs: at the dispatch
// key BackendSelect, which is active for every call and does nothing for these operations otherwise.
#include "intarsia/nn/recompute/products.h"

#include <ATen/ops/_unsafe_view_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/mm_ops.h>
#include <torch/library.h>

#include "intarsia/tensor/matrix_product.h"

namespace intarsia::nn {
namespace {

struct Open {
  KeptProducts* products = nullptr;
  const std::size_t* num_saved = nullptr;
};
thread_local Open open_scope;

// Leaves out products inside a product, such as those of a convolution.
class Outside {
 public:
  Outside() : before_(open_scope) { open_scope = {}; }
  ~Outside() { open_scope = before_; }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  Open before_;
};

// Shares memory and version counter with `tensor`, not the graph that holds it.
at::Tensor shadow_of(const at::Tensor& tensor) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), false));
}

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);

// The product itself: by our kernel where it is faster than the device's, whoever asks, autograd's formulas included.
template <class Op, class... Args>
at::Tensor compute(c10::DispatchKeySet keys, Args... args) {
  return Op::redispatch(keys & kBelow, args...);
}

template <>
at::Tensor compute<at::_ops::mm, const at::Tensor&, const at::Tensor&>(c10::DispatchKeySet keys, const at::Tensor& a,
                                                                       const at::Tensor& b) {
  at::Tensor ours = tensor::product_or_none(a, b);
  return ours.defined() ? ours : at::_ops::mm::redispatch(keys & kBelow, a, b);
}

template <>
at::Tensor compute<at::_ops::addmm, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&,
                   const at::Scalar&>(c10::DispatchKeySet keys, const at::Tensor& row, const at::Tensor& a,
                                      const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  if (beta.equal(1) && alpha.equal(1)) {
    at::Tensor ours = tensor::product_or_none(row, a, b);
    if (ours.defined()) return ours;
  }
  return at::_ops::addmm::redispatch(keys & kBelow, row, a, b, beta, alpha);
}

template <class Op, class Schema = typename Op::schema>
struct Kernel;

template <class Op, class... Args>
struct Kernel<Op, at::Tensor(Args...)> {
  static at::Tensor product(c10::DispatchKeySet keys, Args... args) {
    const Open open = open_scope;
    if (open.products == nullptr) return compute<Op, Args...>(keys, args...);
    const bool first_run = open.num_saved != nullptr;
    if (!first_run) {
      const at::Tensor kept = open.products->next();
      if (kept.defined()) return kept;
    }
    const Outside outside;
    at::Tensor result = compute<Op, Args...>(keys, args...);
    if (first_run) open.products->keep(result, *open.num_saved);
    return result;
  }
  static at::Tensor view(c10::DispatchKeySet keys, Args... args) {
    at::Tensor result = Op::redispatch(keys & kBelow, args...);
    if (open_scope.products != nullptr && open_scope.num_saved != nullptr) open_scope.products->watch_view(result);
    return result;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, BackendSelect, library) {
  library.impl("mm", TORCH_FN(Kernel<at::_ops::mm>::product));
  library.impl("addmm", TORCH_FN(Kernel<at::_ops::addmm>::product));
  library.impl("convolution", TORCH_FN(Kernel<at::_ops::convolution>::product));
  library.impl("_unsafe_view", TORCH_FN(Kernel<at::_ops::_unsafe_view>::view));
}

void KeptProducts::keep(const at::Tensor& product, std::size_t position) {
  products_.push_back({shadow_of(product), {}, position});
}

void KeptProducts::watch_view(const at::Tensor& view) {
  if (!products_.empty() && view.is_alias_of(products_.back().value)) products_.back().view = shadow_of(view);
}

void KeptProducts::close(std::size_t num_saved) {
  while (!products_.empty() && products_.back().position >= num_saved) products_.pop_back();
}

at::Tensor KeptProducts::next() {
  if (next_ >= products_.size()) return {};
  const Product& product = products_[next_++];
  const bool changed = product.value._version() != 0 || (product.view.defined() && product.view._version() != 0);
  if (changed) return {};
  return at::Tensor(product.value.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true));
}

ProductScope::ProductScope(KeptProducts* products, const std::size_t* num_saved) { open_scope = {products, num_saved}; }
ProductScope::~ProductScope() { open_scope = {}; }

}  // namespace intarsia::nn
