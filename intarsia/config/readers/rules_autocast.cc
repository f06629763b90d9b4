// The torch_autocast section: parameters in fp32, products in 16 bits.
#include "intarsia/base/text.h"
#include "intarsia/config/readers/deepspeed_rules.h"

namespace intarsia::config {

void resolve_autocast(Draft& draft) {
  const std::string section = "torch_autocast.", enabled = section + "enabled";
  if (!draft.boolean(enabled) || draft.is_bad(section + "dtype")) return;
  TrainConfig& config = draft.result.config;
  if (config.precision != Precision::kFp32) {
    const char* const other = config.precision == Precision::kBf16 ? "bf16" : "fp16";
    const Asked* dtype = draft.find_asked("dtype");
    draft.problem(enabled, *draft.find(enabled),
                  concat("keeps parameters in fp32 and contradicts ",
                         dtype != nullptr ? dtype->shown : concat(other, ".enabled = true")),
                  "keep one");
    return;
  }
  const std::string word = draft.text(section + "dtype");
  const bool half = word == "fp16" || word == "half" || word == "float16" || word == "torch.float16";
  config.autocast = half ? Precision::kFp16 : Precision::kBf16;
  if (half) {
    // What DeepSpeed takes there: torch's GradScaler with its defaults, which has no lower limit.
    LossScaleConfig& scale = config.loss_scale;
    scale.mode = LossScaleConfig::Mode::kDynamic;
    scale.initial = 65536;
    scale.window = 2000;
    scale.hysteresis = 1;
    scale.min = 0;
  }
  // In DeepSpeed the list names the module classes whose parameters and gradients travel in 16 bits; operations follow
  // autocast's own table whatever it says. Here everything travels in fp32, which is what an empty list asks for.
  const std::string modules = section + "lower_precision_safe_modules";
  const Cell* cell = draft.find(modules);
  if (cell == nullptr) {
    draft.report(Report::Level::kNote, "torch_autocast", draft.sections["torch_autocast"],
                 "parameters are gathered and gradients are reduced in fp32 for all modules");
    return;
  }
  using Kind = formats::JsonValue::Kind;
  if (cell->value.kind != Kind::kArray) {
    draft.problem(modules, *cell, "a list of class names is expected", "[]");
  } else if (!cell->value.items.empty()) {
    draft.refuse(modules, "parameters and gradients of all modules travel in fp32", "[]");
  }
}

}  // namespace intarsia::config
