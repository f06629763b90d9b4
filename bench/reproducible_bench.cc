// Price of reproducible mode in time: llama-34m, 2 ranks, logical = physical micro-batch, against the same run without.
// Usage: reproducible_bench [ROUNDS]      prints a Markdown table for each stage.
#include "bench/paired_steps.h"

int main(int argc, char** argv) {
  using namespace intarsia;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  for (const int stage : {0, 2, 3}) {
    config::TrainConfig usual = bench::peers_config(stage);
    config::TrainConfig reproducible = usual;
    reproducible.run.reproducible = true;
    reproducible.run.logical_micro_batches = bench::kRanks;
    std::printf("stage %d: ", stage);
    bench::print_in_turn({{"usual", usual}, {"reproducible", reproducible}}, rounds);
  }
  return 0;
}
