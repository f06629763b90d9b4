#include "intarsia/plan/lora.h"

#include <algorithm>
#include <cmath>

#include "intarsia/base/error.h"
#include "intarsia/base/philox.h"
#include "intarsia/base/text.h"
#include "intarsia/config/train_config.h"

namespace intarsia::plan {
namespace {

const std::string kWeight = ".weight", kA = ".lora_A.weight", kB = ".lora_B.weight";

std::vector<std::string> usual_targets(const ModelSpec& model) {
  if (model.family == "gpt2") return {"c_attn"};
  return {"q_proj", "v_proj"};
}

bool is_called(const std::string& layer, const std::string& target) {
  return layer == target || layer.ends_with("." + target);
}

// "q_proj", "k_proj", ...: the last parts, each once.
std::vector<std::string> last_parts(const std::vector<LoraTarget>& layers) {
  std::vector<std::string> parts;
  for (const LoraTarget& layer : layers) {
    const std::string part = layer.layer.substr(layer.layer.rfind('.') + 1);
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  }
  return parts;
}

}  // namespace

std::string lora_a_name(const std::string& layer) { return layer + kA; }
std::string lora_b_name(const std::string& layer) { return layer + kB; }
std::string peft_name(const ModelSpec& model, const std::string& name) {
  const bool bare = model.family == "gpt2" && !name.starts_with("transformer.") && !name.starts_with("lm_head.");
  return concat("base_model.model.", bare ? "transformer." : "", name);
}

bool is_adapter(const ParamSpec& param) { return param.name.ends_with(kA) || param.name.ends_with(kB); }
bool has_adapters(const ModelSpec& model) { return std::ranges::any_of(model.params, is_adapter); }

std::vector<LoraTarget> lora_targets(const ModelSpec& model) {
  std::vector<LoraTarget> targets;
  const bool transposed = model.family == "gpt2";
  for (std::size_t unit = 1; unit + 1 < model.units.size(); ++unit) {
    for (const int index : model.units[unit].params) {
      const ParamSpec& param = model.params[static_cast<std::size_t>(index)];
      if (param.shape.size() != 2 || is_adapter(param) || !param.name.ends_with(kWeight)) continue;
      targets.push_back({.layer = param.name.substr(0, param.name.size() - kWeight.size()),
                         .weight = index,
                         .in = param.shape[transposed ? 0 : 1],
                         .out = param.shape[transposed ? 1 : 0]});
    }
  }
  return targets;
}

LoraPlan lora_plan(const config::LoraConfig& config, const ModelSpec& model) {
  if (config.r == 0) return {};
  return {.r = config.r,
          .alpha = config.alpha,
          .dropout = config.dropout,
          .targets = config.targets.empty() ? usual_targets(model) : config.targets};
}

void add_lora(const config::LoraConfig& config, ModelSpec& model) {
  if (config.r == 0) return;
  const LoraPlan plan = lora_plan(config, model);
  const std::vector<LoraTarget> layers = lora_targets(model);
  for (const std::string& target : plan.targets) {
    const bool any = std::ranges::any_of(layers, [&](const LoraTarget& at) { return is_called(at.layer, target); });
    INTARSIA_CHECK(kConfig, any, "lora.targets has ", printable(target),
                   ", which is no linear layer of a block of this ", model.family, "; there are ",
                   join(last_parts(layers)));
  }
  for (ParamSpec& param : model.params) param.frozen = true;
  for (const LoraTarget& at : layers) {
    if (std::ranges::none_of(plan.targets, [&](const std::string& target) { return is_called(at.layer, target); }))
      continue;
    const int unit = model.params[static_cast<std::size_t>(at.weight)].unit;
    const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
      model.units[static_cast<std::size_t>(unit)].params.push_back(static_cast<int>(model.params.size()));
      model.params.push_back({.name = std::move(name), .shape = std::move(shape), .unit = unit, .init = Init::kZeros});
    };
    add(lora_a_name(at.layer), {config.r, at.in});  // its first values are LoraWeights'
    add(lora_b_name(at.layer), {at.out, config.r});
  }
}

ModelSpec without_adapters(ModelSpec model) {
  std::erase_if(model.params, is_adapter);
  for (UnitSpec& unit : model.units) unit.params.clear();
  for (std::size_t i = 0; i < model.params.size(); ++i)
    model.units[static_cast<std::size_t>(model.params[i].unit)].params.push_back(static_cast<int>(i));
  return model;
}

void LoraWeights::read(const ParamSpec& param, Range range, float* out) const {
  if (!is_adapter(param)) return base_->read(param, range, out);
  if (param.name.ends_with(kB)) {
    std::fill(out, out + range.size(), 0.0F);
    return;
  }
  const std::uint64_t key = philox_key(seed_, "init:" + param.init_key());
  const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(param.shape[1])));
  for (std::int64_t i = range.begin; i < range.end; ++i)
    out[i - range.begin] = bound * (2 * philox_uniform(key, static_cast<std::uint64_t>(i)) - 1);
}

}  // namespace intarsia::plan
