// What Intarsia asks of the CUDA plugin by name (tensor/plugin.h). Loading it brings libtorch_cuda along, which
// registers CUDA's kernels, allocator, streams and autograd threads with torch: the engine asks torch for those.
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "intarsia/base/error.h"
#include "intarsia/cuda/nccl_communicator.h"

extern "C" {

// Errors: kUnsupported where this host has no driver or no device, with what CUDA says.
__attribute__((visibility("default"))) void intarsia_cuda_check() {
  if (c10::cuda::device_count() > 0) return;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  intarsia::fail(intarsia::ErrorKind::kUnsupported, "device cuda: this host offers no CUDA device (",
                 status == cudaSuccess ? "none is visible" : cudaGetErrorString(status), "); use --device cpu");
}

// A communicator that the caller deletes.
__attribute__((visibility("default"))) intarsia::comm::Communicator* intarsia_cuda_communicator(
    const c10::intrusive_ptr<c10d::Store>& store, const std::string& axis, int rank, int size, double timeout_seconds) {
  return std::make_unique<intarsia::cuda::NcclCommunicator>(store, axis, rank, size, timeout_seconds).release();
}
}
