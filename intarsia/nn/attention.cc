#include "intarsia/nn/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "intarsia/nn/functions.h"
#include "intarsia/tensor/kernels/attention.h"
#include "intarsia/tensor/kernels/product.h"

namespace intarsia::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

tensor::HeadStrides strides_of(const at::Tensor& x) {
  return {.batch = x.stride(0), .place = x.stride(2), .head = x.stride(1)};
}
tensor::HeadsInput input_of(const at::Tensor& x) { return {x.const_data_ptr(), strides_of(x)}; }
tensor::HeadsOutput output_of(const at::Tensor& x) { return {x.mutable_data_ptr(), strides_of(x)}; }
at::Tensor readable(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

at::Tensor empty_heads(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

double scale_of(const at::Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(3))); }

tensor::AttentionShape shape_of(const at::Tensor& q, const at::Tensor& k) {
  return {.batch = q.size(0),
          .heads = q.size(1),
          .kv_heads = k.size(1),
          .length = q.size(2),
          .head_dim = q.size(3),
          .scale = scale_of(q)};
}

class CausalAttention : public Function<CausalAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_in, const at::Tensor& k_in,
                            const at::Tensor& v_in) {
    const at::Tensor q = readable(q_in), k = readable(k_in), v = readable(v_in), out = empty_heads(q);
    const at::Tensor log_sum = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    tensor::attention(input_of(q), input_of(k), input_of(v), output_of(out), log_sum.mutable_data_ptr<float>(),
                      shape_of(q, k), q.scalar_type() == at::kBFloat16);
    context->save_for_backward({q, k, v, out, log_sum});
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &log_sum = saved[4];
    const at::Tensor grad = readable(grads[0]), q_grad = empty_heads(q), k_grad = empty_heads(k),
                     v_grad = empty_heads(v);
    tensor::attention_gradients(input_of(grad), input_of(q), input_of(k), input_of(v), input_of(out),
                                log_sum.const_data_ptr<float>(),
                                {.q = output_of(q_grad), .k = output_of(k_grad), .v = output_of(v_grad)},
                                shape_of(q, k), q.scalar_type() == at::kBFloat16);
    return {q_grad, k_grad, v_grad};
  }
};

}  // namespace

bool has_causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::ScalarType type = q.scalar_type();
  return has_kernels(q) && k.scalar_type() == type && v.scalar_type() == type && k.size(2) == q.size(2) &&
         v.sizes() == k.sizes() && q.size(2) > 1 && q.size(3) == k.size(3) && q.size(3) <= tensor::kMostHeadDim &&
         q.size(1) % k.size(1) == 0 && tensor::product_is_faster_for_bf16();
}

at::Tensor plain_causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, q.size(2) > 1, scale_of(q), q.size(1) != k.size(1));
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return CausalAttention::apply(q, k, v);
}

}  // namespace intarsia::nn
