#include "intarsia/tensor/kernels/attention.h"

#include "intarsia/tensor/kernels/kernel_set.h"
#include "intarsia/tensor/kernels/parallel.h"

namespace intarsia::tensor {
namespace {

thread_local ProductScratch scratch_of_thread;

}  // namespace

void attention(const HeadsInput& q, const HeadsInput& k, const HeadsInput& v, const HeadsOutput& out, float* log_sum,
               const AttentionShape& shape, bool bf16) {
  for_each_range(shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels().attention(q, k, v, out, log_sum, shape, bf16, scratch_of_thread, begin, end);
  });
}

void attention_gradients(const HeadsInput& grad, const HeadsInput& q, const HeadsInput& k, const HeadsInput& v,
                         const HeadsInput& out, const float* log_sum, const AttentionGradients& to,
                         const AttentionShape& shape, bool bf16) {
  for_each_range(shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels().attention_gradients(grad, q, k, v, out, log_sum, to, shape, bf16, scratch_of_thread, begin, end);
  });
}

}  // namespace intarsia::tensor
