// Decides what becomes of the tensors that autograd saves for backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace intarsia::nn {

// What a node of the graph holds in place of a saved tensor. Destroyed when the node gives up its saved tensors.
class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  // The tensor, when backward needs it; more than once if the graph is kept. Its gradient history is autograd's matter.
  virtual at::Tensor unpack() = 0;
};

class SavedTensorHandler {
 public:
  virtual ~SavedTensorHandler() = default;
  // Called for each tensor that an operation saves, parameters and the operation's own output among them, in the order
  // in which they are saved; not for numbers that became tensors. What is kept must be a detached alias: `tensor`
  // itself would keep alive the graph that holds it. May throw: the exception leaves the operation.
  virtual std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) = 0;
};

// How handlers are brought to autograd. The default one is for processes without Python: importing torch there replaces
// the engine that it relies on, so that a program that hosts Python must set one that uses Python's
// saved_tensors_hooks.
class SavedTensorBackend {
 public:
  virtual ~SavedTensorBackend() = default;
  // From now on the calling thread's saved tensors go to `handler` alone, until pop().
  virtual void push(SavedTensorHandler& handler) = 0;
  virtual void pop() = 0;
  // Does what must be done before the process's first backward.
  virtual void prepare() {}
};

// Call before the first scope; `backend` must outlive the process's last backward.
void set_saved_tensor_backend(SavedTensorBackend& backend);

// Call before the first backward of a process whose tensors lie on a device: only the autograd engine that runs it gets
// the devices' threads, and the default backend has an engine of its own.
void prepare_saved_tensors();

// While it lives, tensors that are saved on the calling thread go to `handler`; scopes nest, the innermost decides.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHandler& handler);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
};

}  // namespace intarsia::nn
