#include "intarsia/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/tensor/device.h"
#include "intarsia/tensor/dtype_map.h"
#include "intarsia/tensor/kernels/ranges.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::optim {
namespace {

using plan::TensorKind;

// A range of memory of either dtype, seen as fp32: directly, or through a block that is widened and narrowed.
class Window {
 public:
  explicit Window(const at::Tensor& tensor) : tensor_(tensor), wide_(tensor.scalar_type() == at::kFloat) {
    INTARSIA_INVARIANT(wide_ || tensor.scalar_type() == at::kBFloat16, "optimizers work on fp32 and bf16");
  }
  bool wide() const { return wide_; }
  float* open(std::int64_t begin, std::int64_t numel) {
    if (wide_) return tensor_.mutable_data_ptr<float>() + begin;
    tensor::widen_range(tensor_.const_data_ptr<at::BFloat16>() + begin, block_.data(), numel);
    return block_.data();
  }
  void close(std::int64_t begin, std::int64_t numel) {
    if (!wide_) tensor::narrow_range(block_.data(), tensor_.mutable_data_ptr<at::BFloat16>() + begin, numel);
  }

 private:
  const at::Tensor& tensor_;
  bool wide_;
  std::array<float, plan::kShardBlock> block_{};
};

constexpr std::size_t kGradient = 1;                        // its place among the tensors of a chunk
constexpr std::int64_t kStaged = 1024 * plan::kShardBlock;  // elements of a piece that are in host memory at a time
constexpr std::int64_t kOnDevice = std::int64_t{1} << 26;   // elements that an update on the device takes at a time

// Goes over host tensors {master, gradient, states...}, which hold the piece's elements from `first` on, in chunks.
void use_chunks(const std::vector<at::Tensor>& tensors, const Piece& piece, std::int64_t first, bool blocks,
                const std::function<void(const Chunk&)>& use) {
  std::vector<Window> windows(tensors.begin(), tensors.end());
  const bool whole = !blocks && std::ranges::all_of(windows, &Window::wide);
  for (std::int64_t begin = 0; begin < tensors[0].numel();) {
    const std::int64_t to_border = plan::kShardBlock - (piece.flat_begin + first + begin) % plan::kShardBlock;
    const std::int64_t left = tensors[0].numel() - begin, numel = whole ? left : std::min(left, to_border);
    Chunk chunk{.param = windows[0].open(begin, numel),
                .grad = windows[kGradient].open(begin, numel),
                .numel = numel,
                .begin = first + begin};
    for (std::size_t i = 2; i < windows.size(); ++i) chunk.state[i - 2] = windows[i].open(begin, numel);
    use(chunk);
    for (std::size_t i = 0; i < windows.size(); ++i)
      if (i != kGradient) windows[i].close(begin, numel);
    begin += numel;
  }
}

}  // namespace

Optimizer::Optimizer(const plan::RunPlan& plan, std::vector<shard::FlatState>& states, const comm::DataAxes& axes)
    : plan_(plan), states_(states), axes_(axes), piece_index_(states.size()), tensors_(states.size()) {
  const at::NoGradGuard no_grad;
  const tensor::MemoryScope scope(tensor::MemoryCategory::kOptimizer);
  const std::vector<int> owners = plan::matrix_owners(plan);
  const auto shard = sharded() ? std::optional<int>(axis().rank()) : std::nullopt;
  for (std::size_t flat = 0; flat < states_.size(); ++flat) {
    const plan::FlatLayout& layout = *states_[flat].layout;
    if (!layout.trainable) continue;
    for (plan::StateBuffer& buffer : plan::state_buffers(plan, layout, owners, shard)) {
      const double initial = buffer.kind == TensorKind::kSum ? plan.optimizer.initial_sum : 0;
      at::Tensor values =
          at::full({buffer.numel}, initial,
                   at::TensorOptions().dtype(tensor::scalar_type(buffer.dtype)).device(tensor::device_of(plan.device)));
      tensors_[flat].push_back({std::move(buffer), std::move(values)});
    }
    for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
      const plan::Range elements = plan::param_range(layout.slots[slot], states_[flat].updated);
      piece_index_[flat].push_back(pieces_.size());
      if (elements.size() == 0) continue;
      pieces_.push_back({flat, slot, layout.slots[slot].param, elements, layout.slots[slot].offset + elements.begin});
    }
  }
  if (options().ema_decay == 0) return;
  for (const Piece& piece : pieces_)
    for_each_chunk(piece, {TensorKind::kEma}, false,
                   [](const Chunk& chunk) { std::copy_n(chunk.param, chunk.numel, chunk.state[0]); });
}

void Optimizer::step(double lr, double grad_scale) {
  const at::NoGradGuard no_grad;
  ++updates_;
  lr_ = lr;
  beta1_ = plan_.schedule.cycle_momentum ? plan_.schedule.beta1_at_update(updates_) : options().beta1;
  grad_scale_ = static_cast<float>(grad_scale);
  update();
  if (options().ema_decay == 0) return;
  const auto keep = static_cast<float>(options().ema_decay);
  const auto add = static_cast<float>(1 - options().ema_decay);
  for (const Piece& piece : pieces_)
    for_each_chunk(piece, {TensorKind::kEma}, false,
                   [&](const Chunk& chunk) { tensor::mix_range(chunk.state[0], keep, chunk.param, add, chunk.numel); });
}

Rates Optimizer::rates(int param) const {
  const plan::ParamSetting setting = options().setting(param);
  return {.lr = lr_ * setting.lr_ratio,
          .beta1 = beta1_,
          .weight_decay = setting.weight_decay,
          .update = updates_,
          .grad_scale = grad_scale_};
}

at::Tensor Optimizer::state(std::size_t flat, std::size_t slot, TensorKind kind) const {
  const auto found = std::ranges::find(tensors_[flat], kind, [](const StateTensor& one) { return one.layout.kind; });
  if (found == tensors_[flat].end()) return {};
  const plan::StateSlot& place = found->layout.slots[slot];
  return place.elements.size() == 0 ? at::Tensor() : found->values.narrow(0, place.begin, place.elements.size());
}

at::Tensor Optimizer::gather_average(std::size_t flat) const {
  const auto found =
      std::ranges::find(tensors_[flat], TensorKind::kEma, [](const StateTensor& one) { return one.layout.kind; });
  INTARSIA_INVARIANT(found != tensors_[flat].end(), states_[flat].layout->name, " has no moving average");
  const at::Tensor mine = tensor::on_host(found->values);
  if (!sharded()) return mine;
  // Every parameter has one, so it lies over all that the rank updates.
  const shard::FlatState& state = states_[flat];
  at::Tensor whole = at::empty({state.whole.size()}, at::kFloat);
  shard::FlatState::piece(whole, state.whole, state.updated).copy_(mine);
  shard::expand(plan_, axes_, *state.layout, whole, state.whole, plan_.placement.optimizer, plan::Rest::kReplicated,
                "gather average");
  return whole;
}

std::vector<at::Tensor> Optimizer::tensors_of(const Piece& piece, const Kinds& kinds) const {
  const shard::FlatState& state = states_[piece.flat];
  const plan::Range range{piece.flat_begin, piece.flat_begin + piece.elements.size()};
  std::vector<at::Tensor> tensors{shard::FlatState::piece(state.master, state.updated, range),
                                  shard::FlatState::piece(state.grad, state.grad_range, range)};
  for (const TensorKind kind : kinds) tensors.push_back(this->state(piece.flat, piece.slot, kind));
  return tensors;
}

void Optimizer::for_each_chunk(const Piece& piece, const Kinds& kinds, bool blocks,
                               const std::function<void(const Chunk&)>& use) const {
  const std::vector<at::Tensor> tensors = tensors_of(piece, kinds);
  if (tensors[0].is_cpu()) return use_chunks(tensors, piece, 0, blocks, use);
  // On a device through host memory, so much at a time: what is computed is defined once, by the host's kernels.
  const std::int64_t to_border = plan::kShardBlock - piece.flat_begin % plan::kShardBlock;
  for (std::int64_t begin = 0, numel = 0; begin < piece.elements.size(); begin += numel) {
    numel = std::min(piece.elements.size() - begin, begin == 0 ? to_border + kStaged : kStaged);
    std::vector<at::Tensor> host;
    for (const at::Tensor& there : tensors) host.push_back(tensor::on_host(there.narrow(0, begin, numel)));
    use_chunks(host, piece, begin, blocks, use);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (i != kGradient) tensors[i].narrow(0, begin, numel).copy_(host[i]);
  }
}

void Optimizer::for_each_device_chunk(const Piece& piece, const Kinds& kinds,
                                      const std::function<void(const DeviceChunk&)>& use) const {
  const std::vector<at::Tensor> tensors = tensors_of(piece, kinds);
  for (std::int64_t begin = 0; begin < piece.elements.size(); begin += kOnDevice) {
    const std::int64_t numel = std::min(kOnDevice, piece.elements.size() - begin);
    std::vector<at::Tensor> wide;
    for (const at::Tensor& at_rest : tensors) wide.push_back(at_rest.narrow(0, begin, numel).to(at::kFloat));
    use({.param = wide[0], .grad = wide[kGradient], .state = {wide.begin() + 2, wide.end()}});
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (i != kGradient && tensors[i].scalar_type() != at::kFloat) tensors[i].narrow(0, begin, numel).copy_(wide[i]);
  }
}

}  // namespace intarsia::optim
