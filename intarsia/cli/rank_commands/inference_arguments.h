// Flags that eval and generate share, and a model ready to run forward.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "intarsia/base/dtype.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/train/assemble.h"

namespace intarsia::cli {

struct InferenceArguments {
  std::string model;
  std::string adapter;
  std::string dtype = "fp32";
  int ranks = 0;
  int threads = 0;
  std::uint64_t seed = 42;
  std::string init = "files";

  void add_to(CLI::App& app);
  // Errors: kUsage for another word.
  DType compute_dtype() const;
  // The model's weights, with the adapter merged in where one is given. Errors: those of train::open_weights and
  // plan::MergedWeights.
  std::unique_ptr<plan::WeightSource> open_weights(const plan::ModelSource& source, const plan::RunPlan& plan) const;
};

// Parses; returns true when help was printed. Errors: kUsage.
bool parse_arguments(CLI::App& app, int argc, char** argv);

}  // namespace intarsia::cli
