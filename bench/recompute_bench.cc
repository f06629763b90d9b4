// Price of recomputed activations in time: llama-34m, 2 ranks, stage 3, each policy against keeping everything.
// Usage: recompute_bench [ROUNDS]      prints a Markdown table.
#include "bench/paired_steps.h"

int main(int argc, char** argv) {
  using namespace intarsia;
  using config::Recompute;
  std::vector<bench::Setting> settings;
  const auto add = [&](const char* name, Recompute policy, std::int64_t every) {
    settings.push_back({name, bench::peers_config(3)});
    settings.back().config.run.recompute = policy;
    settings.back().config.run.recompute_every = every;
  };
  add("none", Recompute::kNone, 1);
  add("every 4th block", Recompute::kEveryK, 4);
  add("every 2nd block", Recompute::kEveryK, 2);
  add("full", Recompute::kFull, 1);
  add("selective", Recompute::kSelective, 1);
  bench::print_in_turn(settings, argc > 1 ? std::atoi(argv[1]) : 7);
  return 0;
}
