// The parameters that a model's forward reads: one full-shape tensor each, for ever. Their memory comes and goes.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/plan/model_spec.h"

namespace intarsia::nn {

// Holds one leaf tensor of the compute dtype per use of each parameter; all uses of one parameter share one storage.
// A storage starts without memory: reading it throws a c10::Error that names the parameter, until attach() gives it a
// window into somebody's buffer. Saved tensors and views of a parameter follow its storage.
// Invariant: this object never owns parameter memory.
// Threads: one rank's thread.
class Parameters {
 public:
  Parameters(const plan::ModelSpec& model, DType compute_dtype);

  // The leaf of the use-th read of parameter `param` (0 unless ParamSpec::uses > 1).
  const at::Tensor& leaf(int param, int use = 0) const;
  int uses(int param) const { return static_cast<int>(leaves_[static_cast<std::size_t>(param)].size()); }
  int count() const { return static_cast<int>(leaves_.size()); }

  // Points the parameter's storage at the first element of `window`, which must hold its elements in the compute dtype
  // and live until detach().
  void attach(int param, const at::Tensor& window);
  // Takes the memory away; later reads throw.
  void detach(int param);

 private:
  std::vector<std::vector<at::Tensor>> leaves_;
  std::vector<std::string> messages_;
};

}  // namespace intarsia::nn
