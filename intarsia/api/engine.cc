#include "intarsia/api/engine.h"

#include <ATen/ATen.h>

#include <exception>
#include <numeric>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/save.h"
#include "intarsia/tensor/dtype_map.h"

namespace intarsia::api {
namespace {

std::vector<std::string> unit_names(const plan::RunPlan& plan) {
  std::vector<std::string> names;
  for (const plan::UnitSpec& unit : plan.model.units) names.push_back(unit.name);
  return names;
}

}  // namespace

WholeParameters::WholeParameters(shard::Engine& engine, std::vector<int> units)
    : engine_(engine), units_(std::move(units)) {
  for (const int unit : units_) engine_.pre_forward(unit);
}

WholeParameters::~WholeParameters() {
  for (const int unit : units_) engine_.post_forward(unit, false);
}

ModuleEngine::ModuleEngine(std::shared_ptr<torch::nn::Module> module, const Config& config, const Options& options)
    : module_(std::move(module)),
      assembly_(assemble(*module_, config, options)),
      micro_batch_size_(assembly_.micro_batch_size),
      exceptions_(std::uncaught_exceptions()) {
  progress_.seed = plan().seed;
  // The root's events are fired by forward().
  for (std::size_t unit = 1; unit < assembly_.module.units.size(); ++unit)
    if (auto* slot = dynamic_cast<nn::UnitSlot*>(assembly_.module.units[unit]))
      slot->connect(assembly_.engine.get(), static_cast<int>(unit), recompute_of(plan().model.units[unit].name));
  assembly_.engine->start_window();
}

std::optional<nn::RecomputeOptions> ModuleEngine::recompute_of(const std::string& unit) const {
  const plan::Recompute policy = plan().recompute.policy;
  if (policy == plan::Recompute::kNone) return std::nullopt;
  return nn::RecomputeOptions{.name = unit, .keep_products = policy == plan::Recompute::kSelective};
}

ModuleEngine::~ModuleEngine() {
  for (torch::nn::Module* unit : assembly_.module.units)
    if (auto* slot = dynamic_cast<nn::UnitSlot*>(unit)) slot->connect(nullptr, 0);
  // Nobody may wait for a rank that is being left by an exception.
  if (std::uncaught_exceptions() > exceptions_) axis().abort(concat("rank ", rank(), " was ended by an exception"));
}

at::ScalarType ModuleEngine::dtype() const { return tensor::scalar_type(plan().compute_dtype); }

double ModuleEngine::sum(double mine) {
  const at::Tensor all = at::empty({ranks()}, at::kDouble);
  axis().all_gather(all, at::full({1}, mine, at::kDouble), {"", "sum of the program"})->wait();
  double total = 0;
  for (int from = 0; from < ranks(); ++from) total += all.const_data_ptr<double>()[from];
  return total;
}

int ModuleEngine::unit_of(const std::string& name) const {
  for (std::size_t unit = 0; unit < plan().model.units.size(); ++unit)
    if (plan().model.units[unit].name == name) return static_cast<int>(unit);
  fail(ErrorKind::kUsage, printable(name), " is no unit; the units are ", join(unit_names(plan())),
       ". Take it into Options::units, or make its module a Unit<M>");
}

int ModuleEngine::unit_of(const torch::nn::Module& module) const {
  for (std::size_t unit = 0; unit < assembly_.module.units.size(); ++unit)
    if (assembly_.module.units[unit] == &module) return static_cast<int>(unit);
  fail(ErrorKind::kUsage, "this ", module.name(), " is no unit; the units are ", join(unit_names(plan())),
       ". Take it into Options::units, or make it a Unit<M>");
}

void ModuleEngine::start_forward() {
  if (micro_step_ == 0 && !has_backward_) nn::check_registered(*module_, assembly_.module);
}

void ModuleEngine::backward(const at::Tensor& loss) { add(loss, 1, Counting::kMicroSteps); }

void ModuleEngine::backward(const at::Tensor& loss_sum, std::int64_t num_targets) {
  INTARSIA_CHECK(kUsage, num_targets >= 0, "backward() of a loss over ", num_targets,
                 " targets; 0 or more are possible");
  add(loss_sum, num_targets, Counting::kTargets);
}

void ModuleEngine::add(const at::Tensor& loss, std::int64_t targets, Counting counting) {
  INTARSIA_CHECK(kUsage, !has_backward_, "a second backward() in one micro-step: add the losses first, or call step()");
  INTARSIA_CHECK(kUsage, loss.defined() && loss.numel() == 1, "backward() needs a loss of one element, not ",
                 loss.defined() ? loss.numel() : 0);
  INTARSIA_CHECK(
      kUsage, counting_ == Counting::kNone || counting_ == counting,
      "backward(loss) and backward(loss_sum, num_targets) in one window: a mean cannot be taken over both; use "
      "one of them");
  counting_ = counting;
  has_backward_ = true;
  sums_.losses.push_back(loss.item<double>());
  sums_.targets += targets;
  assembly_.engine->backward(loss.dim() == 0 ? loss : loss.reshape({}), assembly_.loss_scale->scale());
}

bool ModuleEngine::step() {
  INTARSIA_CHECK(kUsage, has_backward_, "step() without a backward() in this micro-step");
  has_backward_ = false;
  if (++micro_step_ < accumulation()) return false;
  last_step_ = optim::finish_step(*assembly_.engine, *assembly_.optimizer, *assembly_.loss_scale, sums_,
                                  [] { return optim::RankReport{}; });
  ++progress_.step;
  progress_.updates = assembly_.optimizer->updates();
  if (plan().loss_scale.dynamic) progress_.loss_scale = assembly_.loss_scale->state();
  if (counting_ == Counting::kTargets) progress_.tokens += last_step_.tokens;
  micro_step_ = 0;
  counting_ = Counting::kNone;
  sums_ = {};
  assembly_.engine->start_window();
  log();
  return true;
}

void ModuleEngine::log() const {
  if (rank() != 0 || assembly_.log_every <= 0 || progress_.step % assembly_.log_every != 0) return;
  log_note(concat("step ", progress_.step, "  loss ", shortest(last_step_.loss), "  gradient norm ",
                  shortest(last_step_.grad_norm), "  lr ", shortest(last_step_.lr),
                  last_step_.skipped ? "  skipped: not finite" : ""));
}

at::Tensor ModuleEngine::gather(const std::string& name) {
  const std::optional<int> param = plan().model.find(name);
  INTARSIA_CHECK(kUsage, param.has_value(), "the module has no parameter called ", printable(name));
  for (std::size_t flat = 0; flat < plan().flats.size(); ++flat)
    for (const plan::ParamSlot& slot : plan().flats[flat].slots)
      if (slot.param == *param)
        return assembly_.engine->gather(flat, shard::Engine::What::kMaster)
            .narrow(0, slot.offset, slot.numel)
            .view(plan().model.params[static_cast<std::size_t>(*param)].shape)
            .clone();
  fail(ErrorKind::kInternal, "parameter ", printable(name), " lies in no flat buffer");
}

WholeParameters ModuleEngine::whole() {
  std::vector<int> units(plan().model.units.size());
  std::iota(units.begin(), units.end(), 0);
  return {*assembly_.engine, std::move(units)};
}

WholeParameters ModuleEngine::whole(const std::string& unit) { return {*assembly_.engine, {unit_of(unit)}}; }

std::string ModuleEngine::save(const std::string& dir, std::int64_t data_position) {
  INTARSIA_CHECK(kUsage, micro_step_ == 0 && !has_backward_, "save() inside a window (", micro_step_, " of ",
                 accumulation(),
                 " micro-steps ended): sums of gradients are not saved. Save after step() returned true");
  progress_.data_position = data_position;
  checkpoint::SaveRequest request{
      .root = dir, .progress = progress_, .config = assembly_.config_json, .keep = static_cast<int>(assembly_.keep)};
  return checkpoint::save_checkpoint(request, *assembly_.engine, *assembly_.optimizer).path;
}

std::optional<ModuleEngine::Loaded> ModuleEngine::load(const std::string& dir) {
  INTARSIA_CHECK(kUsage, micro_step_ == 0 && !has_backward_, "load() inside a window; load between windows");
  const checkpoint::Found found = checkpoint::load_newest(dir, *assembly_.engine, *assembly_.optimizer);
  for (const checkpoint::PassedOver& passed : found.passed_over)
    if (rank() == 0) log_warning(concat(passed.path, " is passed over: ", passed.reason));
  if (!found.path) return std::nullopt;
  progress_ = found.manifest->progress;
  if (plan().loss_scale.dynamic && progress_.loss_scale) assembly_.loss_scale->restore(*progress_.loss_scale);
  return Loaded{.path = *found.path, .steps = progress_.step, .data_position = progress_.data_position};
}

}  // namespace intarsia::api
