// The parameters that a model's forward reads: one full-shape tensor each, for ever. Their memory comes and goes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/plan/model_spec.h"

namespace intarsia::nn {

// Holds the leaf tensors of each parameter, of the compute dtype; all leaves of one parameter share one storage.
// A storage without a window has no memory: reading it throws a c10::Error that names the parameter, until attach()
// gives it a window into somebody's buffer. Saved tensors and views of a parameter follow its storage.
// Invariant: from the first detach() of a parameter on this object owns no memory of it.
// Threads: one rank's thread.
class Parameters {
 public:
  // Leaves of our own models on `device`, one for each use of a parameter, without memory from the start.
  Parameters(const plan::ModelSpec& model, DType compute_dtype, c10::Device device = at::kCPU);
  // The leaves of somebody's module: leaves[p] are the tensors that parameter `p` of `model` is known by (several when
  // tied names have a tensor each). They stay the same tensors for everybody who holds them, and keep their values and
  // dtype until the parameter's first detach(); then their memory is freed, and they are of the compute dtype and on
  // `device`. A leaf there that is dense, at offset 0 and alone in its storage keeps that storage, so that aliases made
  // earlier follow too; others, and leaves on other devices or meta, get one of their own.
  Parameters(const plan::ModelSpec& model, DType compute_dtype, std::vector<std::vector<at::Tensor>> leaves,
             c10::Device device = at::kCPU);

  // The leaf of the use-th read of parameter `param` (0 unless ParamSpec::uses > 1).
  const at::Tensor& leaf(int param, int use = 0) const;
  int uses(int param) const { return static_cast<int>(leaves_[static_cast<std::size_t>(param)].size()); }
  int count() const { return static_cast<int>(leaves_.size()); }

  // Points the parameter's storage at the first element of `window`, which must hold its elements in the compute dtype
  // and live until detach().
  void attach(int param, const at::Tensor& window);
  // Takes the memory away; later reads throw.
  void detach(int param);
  // Errors: kUsage, naming the parameter, when a leaf no longer has the storage, shape or dtype that it had here:
  // somebody replaced its data (set_data, Module::to), and what it computes with is not what is trained.
  void check_not_replaced(int param) const;

 private:
  void adopt(std::size_t param);

  std::vector<std::vector<at::Tensor>> leaves_;
  std::vector<c10::Storage> storages_;  // by parameter; null until a module's leaf is adopted
  std::vector<std::vector<std::int64_t>> shapes_;
  at::ScalarType type_;
  c10::Device device_;
  std::vector<std::string> names_;
  std::vector<std::string> messages_;
};

}  // namespace intarsia::nn
