#include "intarsia/config/optimizer_config.h"

#include <algorithm>
#include <cmath>

namespace intarsia::config {

bool waits_for_length(const SchedulerConfig& scheduler) {
  return std::ranges::any_of(scheduler.params, [](const auto& param) { return param.second == "\"auto\""; });
}

void settle_length(SchedulerConfig& scheduler, std::int64_t updates) {
  if (scheduler.warmup_share > 0) {
    const auto warmup = static_cast<std::int64_t>(std::ceil(scheduler.warmup_share * static_cast<double>(updates)));
    scheduler.warmup_steps = std::max<std::int64_t>(1, warmup);
    scheduler.warmup_share = 0;
  }
  if (scheduler.total_steps == 0) scheduler.total_steps = updates;
  for (auto& [name, text] : scheduler.params) {
    if (text != "\"auto\"") continue;
    text = std::to_string(name.find("warmup") != std::string::npos ? scheduler.warmup_steps : scheduler.total_steps);
  }
}

}  // namespace intarsia::config
