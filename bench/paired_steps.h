// Steps of several settings of one run, in turn in one process, so that what else the machine does falls on all alike.
#pragma once

#include <ATen/ATen.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "intarsia/comm/run_ranks.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/step.h"

namespace intarsia::bench {

struct Setting {
  std::string name;
  config::TrainConfig config;
};

// The work of bench/peers: llama-34m, 2 ranks, micro-batches of 4 x 256 random tokens, AdamW, clipping, fp32.
constexpr int kRanks = 2;
constexpr std::int64_t kMicroBatch = 4, kLength = 256;

inline config::TrainConfig peers_config(int stage) {
  config::TrainConfig config;
  config.run.ranks = kRanks;
  config.zero.stage = stage;
  config.batch = {kMicroBatch * kRanks, kMicroBatch, 1};
  config.optimizer.lr = 3e-4;
  config.optimizer.weight_decay = 0.01;
  return config;
}

struct Timed {
  std::vector<double> wall, cpu;  // by round: seconds; cpu is of both ranks
};

inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double load_average() {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return load;
}

// One step of each setting a round, every second round in reverse order; the first round is not counted.
inline std::vector<Timed> run_in_turn(const std::vector<Setting>& settings, int rounds) {
  const formats::HfConfig model = plan::preset("llama-34m").value();
  std::vector<train::TrainJob> jobs(settings.size());
  for (std::size_t i = 0; i < settings.size(); ++i) {
    jobs[i].model = model;
    jobs[i].random_weights = true;
    jobs[i].plan = plan::make_run_plan(settings[i].config, model, kLength, rounds + 1);
  }
  std::vector<Timed> timed(settings.size());
  const at::Tensor ids = at::randint(0, model.vocab_size, {kRanks, kMicroBatch, kLength}, at::kLong);
  comm::run_ranks(
      kRanks,
      [&](comm::Communicator& axis) {
        std::vector<train::Assembly> assemblies;
        for (const train::TrainJob& job : jobs) assemblies.push_back(train::assemble(job, axis));
        const auto step = [&](std::size_t i) {
          train::Assembly& assembly = assemblies[i];
          train::train_step(
              *assembly.engine, *assembly.model, *assembly.optimizer, *assembly.loss_scale, 1,
              [&](std::int64_t) {
                return data::Batch{ids[axis.rank()], ids[axis.rank()], {}, kMicroBatch * (kLength - 1)};
              },
              [] { return train::RankReport{}; });
        };
        for (int round = 0; round <= rounds; ++round)
          for (std::size_t turn = 0; turn < settings.size(); ++turn) {
            const std::size_t i = round % 2 == 0 ? turn : settings.size() - 1 - turn;
            axis.barrier({"", "before a step"});
            const auto start = std::chrono::steady_clock::now();
            const double cpu = cpu_seconds();
            step(i);
            axis.barrier({"", "after a step"});
            if (axis.rank() != 0 || round == 0) continue;
            timed[i].wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
            timed[i].cpu.push_back(cpu_seconds() - cpu);
          }
      },
      {.timeout_seconds = 600});
  return timed;
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// "1.034 (1.021 to 1.050)": the ratios of the rounds.
inline std::string ratio_text(const std::vector<double>& mine, const std::vector<double>& base) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < mine.size(); ++round) ratios.push_back(mine[round] / base[round]);
  char text[80];
  std::snprintf(text, sizeof text, "%.3f (%.3f to %.3f)", median(ratios), *std::ranges::min_element(ratios),
                *std::ranges::max_element(ratios));
  return text;
}

// Runs and prints a Markdown table; the first setting is what the others are divided by.
inline void print_in_turn(const std::vector<Setting>& settings, int rounds) {
  const double load = load_average();
  const std::vector<Timed> timed = run_in_turn(settings, rounds);
  std::printf("%d rounds, in turn; load average before %.1f, after %.1f\n\n", rounds, load, load_average());
  std::printf("| setting | step s | CPU s of both ranks | ratio, wall | ratio, CPU |\n|---|--:|--:|--:|--:|\n");
  for (std::size_t i = 0; i < settings.size(); ++i)
    std::printf("| %s | %.3f | %.3f | %s | %s |\n", settings[i].name.c_str(), median(timed[i].wall),
                median(timed[i].cpu), ratio_text(timed[i].wall, timed[0].wall).c_str(),
                ratio_text(timed[i].cpu, timed[0].cpu).c_str());
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace intarsia::bench
