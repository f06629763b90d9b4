// From a configuration to the optimizer's plan.
#pragma once

#include "intarsia/config/train_config.h"
#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/optimizer_plan.h"

namespace intarsia::plan {

// Errors: kConfig for a pattern of a parameter group that matches no trainable parameter, for a parameter in two
// groups, and for a group's rate beside a base rate of 0; kUnsupported for an algorithm that is not built.
OptimizerPlan optimizer_of(const config::TrainConfig& config, const ModelSpec& model);

}  // namespace intarsia::plan
