#include "intarsia/nn/recompute/saved_tensor_scope.h"

#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace intarsia::nn {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

thread_local std::vector<SavedTensorHandler*> handlers;

class Hooks final : public SavedVariableHooks {
 public:
  explicit Hooks(SavedTensorHandler& handler) : handler_(handler) {}
  void call_pack_hook(const at::Tensor& tensor) override { packed_ = handler_.pack(tensor); }
  at::Tensor call_unpack_hook() override { return packed_->unpack(); }

 private:
  SavedTensorHandler& handler_;  // used while the scope that named it is open: autograd packs at once
  std::unique_ptr<PackedTensor> packed_;
};

// Autograd asks its engine for hooks whenever it saves a tensor; the engine of a process without Python has none.
class HookedEngine final : public Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return handlers.empty() ? nullptr : std::make_unique<Hooks>(*handlers.back());
  }
};

class EngineBackend final : public SavedTensorBackend {
 public:
  void push(SavedTensorHandler& handler) override {
    prepare();
    handlers.push_back(&handler);
  }
  void pop() override { handlers.pop_back(); }
  void prepare() override {
    static std::once_flag installed;
    std::call_once(installed, [] {
      torch::autograd::set_default_engine_stub([]() -> Engine& {
        static auto* const engine = new HookedEngine();  // for ever: graphs may die after the statics
        return *engine;
      });
    });
  }
};

EngineBackend engine_backend;
std::atomic<SavedTensorBackend*> current_backend = &engine_backend;

}  // namespace

void set_saved_tensor_backend(SavedTensorBackend& backend) { current_backend = &backend; }

void prepare_saved_tensors() { current_backend.load()->prepare(); }

SavedTensorScope::SavedTensorScope(SavedTensorHandler& handler) { current_backend.load()->push(handler); }
SavedTensorScope::~SavedTensorScope() { current_backend.load()->pop(); }

}  // namespace intarsia::nn
