#include "intarsia/plan/sim/goodput.h"

#include <cmath>

#include "intarsia/base/error.h"

namespace intarsia::plan {

Goodput goodput(const FailureModel& model) {
  Goodput out;
  const double between = 3600 * model.hours_between_failures / model.devices, cost = model.checkpoint_seconds;
  INTARSIA_CHECK(kConfig, cost < 2 * between, "a checkpoint of ", cost, " s and a failure each ", between,
                 " s: nothing would ever be done");
  out.seconds_between_failures = between;
  out.young_seconds = std::sqrt(2 * cost * between);
  const double x = cost / (2 * between);
  out.daly_seconds = std::sqrt(2 * cost * between) * (1 + std::sqrt(x) / 3 + x / 9) - cost;
  // Expected wall time of one second of work (Daly's equation 20 without its last, partial interval).
  const double interval = out.daly_seconds;
  const double wall =
      between * std::exp(model.restart_seconds / between) * std::expm1((interval + cost) / between) / interval;
  out.share = 1 / wall;
  return out;
}

}  // namespace intarsia::plan
