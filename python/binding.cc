// The engine for Python modules: the four unit events, the steps of a window, and recomputation through Python's own
// saved-tensor hooks. A trial: docs/decisions/python_modules.md says what it taught.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <map>

#include "intarsia/api/engine.h"
#include "intarsia/nn/recompute/recompute.h"
#include "intarsia/nn/recompute/saved_tensor_scope.h"

namespace intarsia::python {
namespace {

namespace py = pybind11;
using Parameters = std::vector<std::pair<std::string, at::Tensor>>;

// The parts and parameters of a Python module, the same tensors under the same names.
class Mirror : public torch::nn::Module {
 public:
  void add(const std::string& path, const at::Tensor& parameter) {
    const std::size_t dot = path.find('.');
    if (dot == std::string::npos) {
      register_parameter(path, parameter, parameter.requires_grad());
      return;
    }
    const std::string name = path.substr(0, dot);
    std::shared_ptr<Mirror>& part = parts_[name];
    if (!part) part = register_module(name, std::make_shared<Mirror>());
    part->add(path.substr(dot + 1), parameter);
  }

 private:
  std::map<std::string, std::shared_ptr<Mirror>> parts_;
};

std::shared_ptr<Mirror> mirror_of(const Parameters& parameters) {
  auto root = std::make_shared<Mirror>();
  for (const auto& [name, parameter] : parameters) root->add(name, parameter);
  return root;
}

class Engine : public api::ModuleEngine {
 public:
  Engine(const Parameters& parameters, const std::vector<std::string>& units, const std::string& config)
      : ModuleEngine(mirror_of(parameters), config, {.units = nn::wrap_names(units)}) {}
  using ModuleEngine::start_forward;
  nn::UnitEvents& events() { return shard_engine(); }
  std::vector<std::string> units() const {
    std::vector<std::string> names;
    for (const plan::UnitSpec& unit : plan().model.units) names.push_back(unit.name);
    return names;
  }
};

// An exception that leaves a handler has to pass the Python frames of the model's forward. It waits here while a Python
// exception of this type, which no `except Exception` takes, travels in its stead.
thread_local std::exception_ptr travelling;
PyObject* travels() {
  static PyObject* const type = PyErr_NewException("_intarsia.Travelling", PyExc_BaseException, nullptr);
  return type;
}

// Autograd belongs to Python here, and so do its hooks for saved tensors.
class PythonHooks final : public nn::SavedTensorBackend {
 public:
  void push(nn::SavedTensorHandler& handler) override {
    const py::gil_scoped_acquire gil;
    const auto pack = py::cpp_function([&handler](const at::Tensor& tensor) {
      try {
        return handler.pack(tensor);
      } catch (...) {
        travelling = std::current_exception();
        PyErr_SetNone(travels());
        throw py::error_already_set();
      }
    });
    hooks("_push_saved_tensors_default_hooks")(pack, py::cpp_function(&nn::PackedTensor::unpack));
  }
  void pop() override {
    const py::gil_scoped_acquire gil;
    hooks("_pop_saved_tensors_default_hooks")();
  }

 private:
  static py::object hooks(const char* name) { return py::module_::import("torch._C._autograd").attr(name); }
};

// `forward`: a function of a list of tensors that returns a list of tensors.
nn::TensorList recomputed(const py::function& forward, const nn::TensorList& inputs, const std::string& name) {
  const nn::ListForward piece = nn::recomputed(
      [forward](const nn::TensorList& now) {
        const py::gil_scoped_acquire gil;
        try {
          return forward(now).cast<nn::TensorList>();
        } catch (const py::error_already_set& error) {
          if (error.matches(travels())) std::rethrow_exception(std::exchange(travelling, nullptr));
          throw;
        }
      },
      {.name = name});
  return piece(inputs);
}

PYBIND11_MODULE(_intarsia, module) {
  static PythonHooks python_hooks;
  nn::set_saved_tensor_backend(python_hooks);
  py::class_<nn::PackedTensor>(module, "PackedTensor");
  module.def("recomputed", &recomputed);
  module.def("recomputed_runs", [] { return nn::recompute_time().runs; });
  // Collectives and backward wait for other ranks and for Python's hooks: without the interpreter's lock.
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<Engine>(module, "Engine")
      .def(py::init<const Parameters&, const std::vector<std::string>&, const std::string&>(), Unlocked())
      .def("units", &Engine::units)
      .def("rank", &Engine::rank)
      .def("start_forward", &Engine::start_forward)
      .def(
          "pre_forward", [](Engine& self, int unit) { self.events().pre_forward(unit); }, Unlocked())
      .def(
          "post_forward", [](Engine& self, int unit, bool more) { self.events().post_forward(unit, more); }, Unlocked())
      .def(
          "pre_backward", [](Engine& self, int unit) { self.events().pre_backward(unit); }, Unlocked())
      .def(
          "post_backward", [](Engine& self, int unit) { self.events().post_backward(unit); }, Unlocked())
      .def(
          "backward", [](Engine& self, const at::Tensor& loss) { self.backward(loss); }, Unlocked())
      .def("step", &Engine::step, Unlocked())
      .def("last_loss", [](const Engine& self) { return self.last_step().loss; })
      .def("last_norm", [](const Engine& self) { return self.last_step().grad_norm; });
}

}  // namespace
}  // namespace intarsia::python
