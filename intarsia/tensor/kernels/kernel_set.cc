#include "intarsia/tensor/kernels/kernel_set.h"

#include <new>

namespace intarsia::tensor {
namespace {

constexpr std::align_val_t kAlignment{64};

#if defined(__x86_64__)
bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}
bool runs_avx2() { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }
#else
bool runs_avx512() { return false; }
bool runs_avx2() { return false; }
#endif

}  // namespace

ProductScratch::~ProductScratch() {
  for (const Part& part : parts_) ::operator delete[](part.data, kAlignment);
}

float* ProductScratch::take(int part, std::int64_t numel) {
  Part& taken = parts_[part];
  if (taken.numel < numel) {
    ::operator delete[](taken.data, kAlignment);
    taken = {};
    taken.data = static_cast<float*>(::operator new[](static_cast<std::size_t>(numel) * sizeof(float), kAlignment));
    taken.numel = numel;
  }
  return taken.data;
}

std::vector<const KernelSet*> runnable_kernels() {
  std::vector<const KernelSet*> sets{&portable_kernels()};
  if (runs_avx2()) sets.push_back(&avx2_kernels());
  if (runs_avx512()) sets.push_back(&avx512_kernels());
  return sets;
}

const KernelSet& kernels() {
  static const KernelSet& best = *runnable_kernels().back();
  return best;
}

}  // namespace intarsia::tensor
