#include "intarsia/nn/functions.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "intarsia/tensor/kernels/in_use.h"
#include "intarsia/tensor/kernels/rows.h"

namespace intarsia::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

bool is_bf16(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; }

class RmsNorm : public Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight, double eps) {
    const at::Tensor x = input.contiguous();
    const tensor::NormShape shape{x.numel() / x.size(-1), x.size(-1), eps};
    at::Tensor y = at::empty(x.sizes(), x.options());
    const at::Tensor scale = at::empty({shape.rows}, x.options().dtype(at::kFloat));
    tensor::rms_norm(x.const_data_ptr(), weight.const_data_ptr(), y.mutable_data_ptr(), scale.mutable_data_ptr<float>(),
                     shape, is_bf16(x));
    context->save_for_backward({x, weight, scale});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const at::Tensor grad = grads[0].contiguous();
    const tensor::NormShape shape{x.numel() / x.size(-1), x.size(-1), 0};
    at::Tensor x_grad, weight_grad;
    if (context->needs_input_grad(1)) {
      weight_grad = at::empty(weight.sizes(), weight.options());
      tensor::rms_norm_weight_gradient(grad.const_data_ptr(), x.const_data_ptr(), scale.const_data_ptr<float>(),
                                       weight_grad.mutable_data_ptr(), shape, is_bf16(x));
    }
    if (context->needs_input_grad(0)) {
      x_grad = at::empty(x.sizes(), x.options());
      tensor::rms_norm_input_gradient(grad.const_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(),
                                      scale.const_data_ptr<float>(), x_grad.mutable_data_ptr(), shape, is_bf16(x));
    }
    return {x_grad, weight_grad, at::Tensor()};
  }
};

tensor::HeadStrides strides_of(const at::Tensor& x_BNTD) {
  return {.batch = x_BNTD.stride(0), .place = x_BNTD.stride(2), .head = x_BNTD.stride(1)};
}

at::Tensor rotated(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const at::Tensor x = input.stride(3) == 1 ? input : input.contiguous();
  const tensor::RotaryShape shape{.batch = x.size(0),
                                  .length = x.size(2),
                                  .heads = x.size(1),
                                  .head_dim = x.size(3),
                                  .table_stride = cos.dim() == 4 && cos.size(0) > 1 ? cos.stride(0) : 0};
  at::Tensor to = at::empty({shape.batch, shape.length, shape.heads, shape.head_dim}, x.options()).transpose(1, 2);
  tensor::rotary(x.const_data_ptr(), strides_of(x), cos.const_data_ptr(), sin.const_data_ptr(), to.mutable_data_ptr(),
                 strides_of(to), shape, back, is_bf16(x));
  return to;
}

class Rotate : public Function<Rotate> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->saved_data["cos"] = cos;  // the model's own, which no recomputation can free
    context->saved_data["sin"] = sin;
    return rotated(x, cos, sin, false);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {rotated(grads[0], context->saved_data["cos"].toTensor(), context->saved_data["sin"].toTensor(), true),
            at::Tensor(), at::Tensor()};
  }
};

class Swiglu : public Function<Swiglu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_in, const at::Tensor& up_in) {
    const at::Tensor gate = gate_in.contiguous(), up = up_in.contiguous();
    at::Tensor out = at::empty(gate.sizes(), gate.options());
    tensor::swiglu(gate.const_data_ptr(), up.const_data_ptr(), out.mutable_data_ptr(), out.numel(), is_bf16(gate));
    context->save_for_backward({gate, up});
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor gate_grad = at::empty(saved[0].sizes(), saved[0].options());
    at::Tensor up_grad = at::empty(saved[1].sizes(), saved[1].options());
    tensor::swiglu_gradients(grad.const_data_ptr(), saved[0].const_data_ptr(), saved[1].const_data_ptr(),
                             gate_grad.mutable_data_ptr(), up_grad.mutable_data_ptr(), grad.numel(), is_bf16(grad));
    return {gate_grad, up_grad};
  }
};

}  // namespace

bool has_kernels(const at::Tensor& x) {
  return tensor::kernels_in_use() && x.is_cpu() && (x.scalar_type() == at::kFloat || is_bf16(x)) &&
         !at::autocast::is_autocast_enabled(at::kCPU);
}

at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.pow(2).mean(-1, true) + eps);
  return weight * (wide * scale).to(x.scalar_type());
}

at::Tensor plain_rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor turned = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  return x * cos + turned * sin;
}

at::Tensor plain_swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!has_kernels(x) || weight.scalar_type() != x.scalar_type()) return plain_rms_norm(x, weight, eps);
  return RmsNorm::apply(x, weight, eps);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (!has_kernels(x) || cos.scalar_type() != x.scalar_type()) return plain_rotate(x, cos, sin);
  return Rotate::apply(x, cos, sin);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (!has_kernels(gate) || up.scalar_type() != gate.scalar_type()) return plain_swiglu(gate, up);
  return Swiglu::apply(gate, up);
}

}  // namespace intarsia::nn
