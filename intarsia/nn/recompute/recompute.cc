#include "intarsia/nn/recompute/recompute.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/nn/recompute/products.h"
#include "intarsia/nn/recompute/saved_tensor_scope.h"

namespace intarsia::nn {
namespace {

enum class Run { kNone, kFirst, kSecond };
thread_local Run current_run = Run::kNone;
thread_local RecomputeTime spent;

class RunScope {
 public:
  explicit RunScope(Run run) : before_(std::exchange(current_run, run)) {}
  ~RunScope() { current_run = before_; }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

 private:
  Run before_;
};

at::Tensor generator_state(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(c10::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// The devices whose default generators a piece may draw from.
std::vector<c10::Device> drawn_from(const TensorList& inputs) {
  std::vector<c10::Device> devices{c10::Device(at::kCPU)};
  for (const at::Tensor& input : inputs)
    if (input.defined() && !input.is_cpu() && !input.is_meta()) {
      devices.push_back(input.device());
      break;
    }
  return devices;
}

// Lets the default generators of `devices` go on from `states` for a while; an undefined state leaves one alone.
class GeneratorScope {
 public:
  GeneratorScope(const std::vector<c10::Device>& devices, const TensorList& states) : devices_(devices) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      before_.emplace_back();
      if (!states[i].defined()) continue;
      before_[i] = generator_state(devices_[i]);
      set_generator_state(devices_[i], states[i]);
    }
  }
  ~GeneratorScope() {
    for (std::size_t i = 0; i < devices_.size(); ++i)
      if (before_[i].defined()) set_generator_state(devices_[i], before_[i]);
  }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  const std::vector<c10::Device>& devices_;
  TensorList before_;
};

// Autocast's cache would hold 16-bit copies of whole parameters past the piece, and past their next update.
class WithoutCastCache {
 public:
  WithoutCastCache() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~WithoutCastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  WithoutCastCache(const WithoutCastCache&) = delete;
  WithoutCastCache& operator=(const WithoutCastCache&) = delete;

 private:
  bool before_;
};

// Thrown by the last saved tensor of a second run: what follows it is not needed.
struct LastOneSaved {};

// One recomputed run of a piece. Owned by the saved tensors that it stands for: gone when the last of them is.
class Piece final : public std::enable_shared_from_this<Piece> {
 public:
  Piece(ListForward forward, const RecomputeOptions& options, const TensorList& inputs)
      : forward_(std::move(forward)),
        name_(options.name),
        keep_products_(options.keep_products),
        devices_(drawn_from(inputs)) {
    for (const at::Tensor& input : inputs) {
      inputs_.push_back(input.defined() ? input.detach().requires_grad_(input.requires_grad()) : at::Tensor());
      versions_.push_back(input.defined() ? input._version() : 0);
    }
  }

  TensorList first_run(const TensorList& inputs);
  at::Tensor take(std::size_t index);
  // Nobody will ask for this one any more.
  void drop(std::size_t index) {
    slots_[index].wanted = false;
    slots_[index].tensor.reset();
  }

 private:
  struct Slot {
    std::vector<std::int64_t> shape;
    at::ScalarType dtype = at::kFloat;
    bool wanted = true;
    at::Tensor tensor;  // from the second run on
  };
  class Number;      // a saved tensor of the first run
  class Itself;      // a saved tensor of the second run
  class Numbering;   // handler of the first run
  class Collecting;  // handler of the second run

  void second_run();

  ListForward forward_;
  std::string name_;
  bool keep_products_;
  TensorList inputs_;  // detached
  std::vector<std::int64_t> versions_;
  at::ThreadLocalState thread_state_;
  // Of the thread that ran the forward: a device's backward has a thread of its own, for which that one waits.
  RecomputeTime& spent_ = spent;
  std::vector<c10::Device> devices_;
  TensorList generator_states_;  // by device, at entry; undefined when the piece drew no number there
  KeptProducts products_;
  std::vector<Slot> slots_;
  std::size_t num_saved_ = 0;
  bool first_run_over_ = false;
  bool recomputed_ = false;
};

class Piece::Number final : public PackedTensor {
 public:
  Number(std::shared_ptr<Piece> piece, std::size_t index) : piece_(std::move(piece)), index_(index) {}
  ~Number() override { piece_->drop(index_); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  at::Tensor unpack() override { return piece_->take(index_); }

 private:
  std::shared_ptr<Piece> piece_;
  std::size_t index_;
};

class Piece::Itself final : public PackedTensor {
 public:
  explicit Itself(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor unpack() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

class Piece::Numbering final : public SavedTensorHandler {
 public:
  explicit Numbering(Piece& piece) : piece_(piece) {}
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    piece_.slots_.push_back({tensor.sizes().vec(), tensor.scalar_type(), true, {}});
    return std::make_unique<Number>(piece_.shared_from_this(), piece_.num_saved_++);
  }

 private:
  Piece& piece_;
};

class Piece::Collecting final : public SavedTensorHandler {
 public:
  explicit Collecting(Piece& piece) : piece_(piece) {}
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    Slot& slot = piece_.slots_[next_];
    INTARSIA_CHECK(kData, tensor.sizes() == slot.shape && tensor.scalar_type() == slot.dtype, piece_.name_,
                   " does not repeat itself: saved tensor ", next_, " is ", tensor.scalar_type(), tensor.sizes(),
                   " when recomputed and was ", slot.dtype, at::IntArrayRef(slot.shape),
                   " in forward; a recomputed forward must do the same each time");
    at::Tensor alias = tensor.detach();
    if (slot.wanted) slot.tensor = alias;
    if (++next_ == piece_.slots_.size()) throw LastOneSaved{};
    return std::make_unique<Itself>(std::move(alias));
  }
  std::size_t count() const { return next_; }

 private:
  Piece& piece_;
  std::size_t next_ = 0;
};

TensorList Piece::first_run(const TensorList& inputs) {
  TensorList before;
  for (const c10::Device device : devices_) before.push_back(generator_state(device));
  TensorList outputs;
  {
    Numbering numbering(*this);
    const SavedTensorScope saved(numbering);
    const RunScope run(Run::kFirst);
    const ProductScope products(keep_products_ ? &products_ : nullptr, &num_saved_);
    outputs = forward_(inputs);
  }
  products_.close(num_saved_);
  // Only a piece that draws turns the generator back later: with ranks as threads it belongs to all of them.
  for (std::size_t i = 0; i < devices_.size(); ++i)
    generator_states_.push_back(at::equal(before[i], generator_state(devices_[i])) ? at::Tensor() : before[i]);
  first_run_over_ = true;
  return outputs;
}

at::Tensor Piece::take(std::size_t index) {
  if (!recomputed_) {
    INTARSIA_CHECK(kData, first_run_over_, name_, " runs a backward inside its own forward; it cannot be recomputed");
    const auto start = std::chrono::steady_clock::now();
    second_run();
    ++spent_.runs;
    spent_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return slots_[index].tensor;
}

void Piece::second_run() {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    INTARSIA_CHECK(kData, !inputs_[i].defined() || inputs_[i]._version() == versions_[i], "input ", i, " of ", name_,
                   " was changed in place after ", name_, " read it; it cannot be recomputed");
  Collecting collecting(*this);
  try {
    const at::ThreadLocalStateGuard thread_state(thread_state_);
    const WithoutCastCache without_cache;
    const GeneratorScope generator(devices_, generator_states_);
    const at::AutoGradMode grad_mode(true);
    const SavedTensorScope saved(collecting);
    const RunScope run(Run::kSecond);
    const ProductScope products(keep_products_ ? &products_ : nullptr, nullptr);
    forward_(inputs_);
  } catch (const LastOneSaved&) {
  }
  INTARSIA_CHECK(kData, collecting.count() == slots_.size(), name_, " does not repeat itself: it saved ",
                 collecting.count(), " tensors when recomputed and ", slots_.size(),
                 " in forward; a recomputed forward must do the same each time");
  recomputed_ = true;
  forward_ = nullptr;
  inputs_.clear();
  products_ = {};
  generator_states_.clear();
}

}  // namespace

bool in_second_run() { return current_run == Run::kSecond; }
RecomputeTime recompute_time() { return spent; }

ListForward recomputed(ListForward forward, RecomputeOptions options) {
  return [forward = std::move(forward), options = std::move(options)](const TensorList& inputs) {
    if (!at::GradMode::is_enabled() || current_run != Run::kNone) return forward(inputs);
    return std::make_shared<Piece>(forward, options, inputs)->first_run(inputs);
  };
}

UnitForward recomputed(UnitForward forward, RecomputeOptions options) {
  ListForward list =
      recomputed([forward = std::move(forward)](const TensorList& inputs) { return TensorList{forward(inputs[0])}; },
                 std::move(options));
  return [list = std::move(list)](const at::Tensor& input) { return list({input})[0]; };
}

}  // namespace intarsia::nn
