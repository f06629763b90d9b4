// The kernels of one instruction set. Their bodies (*_body.h) are compiled once for each set, in kernels_SET.cc, and
// one set is chosen when the program starts. Internal to kernels, and to their tests and benches.
#pragma once

#include <cstdint>
#include <vector>

#include "intarsia/tensor/kernels/attention.h"
#include "intarsia/tensor/kernels/product.h"
#include "intarsia/tensor/kernels/rows.h"
#include "intarsia/tensor/kernels/softmax.h"

namespace intarsia::tensor {

// Memory that products pack their inputs into, kept by a thread. Not of ATen's: no meter counts it.
class ProductScratch {
 public:
  ProductScratch() = default;
  ~ProductScratch();
  ProductScratch(const ProductScratch&) = delete;
  ProductScratch& operator=(const ProductScratch&) = delete;
  // At least `numel` floats, aligned to 64 bytes, valid until the same part is taken again.
  float* take(int part, std::int64_t numel);

 private:
  struct Part {
    float* data = nullptr;
    std::int64_t numel = 0;
  };
  Part parts_[3];
};

struct KernelSet {
  const char* name;
  // Of one thread; see product.h.
  void (*product)(const ProductInput& a, const ProductInput& b, const ProductOutput& out, std::int64_t m,
                  std::int64_t n, std::int64_t k, ProductScratch& scratch);
  // Those of rows.h, for a range: of rows, of columns (weight gradient), of samples' places (rotary), of elements.
  void (*rms_norm)(const void* x, const void* weight, void* y, float* scale, const NormShape& shape, bool bf16,
                   std::int64_t begin, std::int64_t end);
  void (*rms_norm_input_gradient)(const void* grad, const void* x, const void* weight, const float* scale, void* x_grad,
                                  const NormShape& shape, bool bf16, std::int64_t begin, std::int64_t end);
  void (*rms_norm_weight_gradient)(const void* grad, const void* x, const float* scale, void* weight_grad,
                                   const NormShape& shape, bool bf16, std::int64_t begin, std::int64_t end);
  void (*rotary)(const void* x, const HeadStrides& x_strides, const void* cos, const void* sin, void* to,
                 const HeadStrides& to_strides, const RotaryShape& shape, bool back, bool bf16, std::int64_t begin,
                 std::int64_t end);
  void (*swiglu)(const void* gate, const void* up, void* out, bool bf16, std::int64_t begin, std::int64_t end);
  void (*swiglu_gradients)(const void* grad, const void* gate, const void* up, void* gate_grad, void* up_grad,
                           bool bf16, std::int64_t begin, std::int64_t end);
  // Those of softmax.h, for a range of rows.
  void (*add_to_softmax)(const void* logits, const LogitTile& tile, float* maximum, float* sum, bool bf16,
                         std::int64_t begin, std::int64_t end);
  void (*softmax_gradient)(void* logits, const LogitTile& tile, const float* log_sum, const std::int64_t* targets,
                           bool bf16, std::int64_t begin, std::int64_t end);
  void (*add_to_fp32)(float* to, const void* from, bool bf16, bool fresh, std::int64_t begin, std::int64_t end);
  // Those of attention.h, for a range of samples' key/value heads.
  void (*attention)(const HeadsInput& q, const HeadsInput& k, const HeadsInput& v, const HeadsOutput& out,
                    float* log_sum, const AttentionShape& shape, bool bf16, ProductScratch& scratch, std::int64_t begin,
                    std::int64_t end);
  void (*attention_gradients)(const HeadsInput& grad, const HeadsInput& q, const HeadsInput& k, const HeadsInput& v,
                              const HeadsInput& out, const float* log_sum, const AttentionGradients& to,
                              const AttentionShape& shape, bool bf16, ProductScratch& scratch, std::int64_t begin,
                              std::int64_t end);
};

const KernelSet& portable_kernels();
const KernelSet& avx2_kernels();    // the portable ones where the compiler knows no AVX2
const KernelSet& avx512_kernels();  // likewise

// The best that this processor runs.
const KernelSet& kernels();
// All that it runs.
std::vector<const KernelSet*> runnable_kernels();

}  // namespace intarsia::tensor
