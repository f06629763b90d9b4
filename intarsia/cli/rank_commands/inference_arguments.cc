#include "intarsia/cli/rank_commands/inference_arguments.h"

#include <iostream>

#include "intarsia/base/error.h"
#include "intarsia/plan/merged_weights.h"

namespace intarsia::cli {

void InferenceArguments::add_to(CLI::App& app) {
  app.add_option("--model", model, "Hugging Face directory, or a preset")->required();
  app.add_option("--init", init, "where the weights come from: files, or random ones to compare with [files]")
      ->check(CLI::IsMember({"files", "random"}));
  app.add_option("--adapter", adapter, "LoRA adapter of --model (a PEFT directory), merged into the weights [none]");
  app.add_option("--dtype", dtype, "type of compute: fp32 | bf16 [fp32]");
  app.add_option("--threads", threads, "threads of one rank [cores / ranks]");
  app.add_option("--seed", seed, "seed of random weights and of sampling [42]");
}

DType InferenceArguments::compute_dtype() const {
  if (dtype == "fp32") return DType::kF32;
  INTARSIA_CHECK(kUsage, dtype == "bf16", "--dtype ", dtype, "; allowed: fp32, bf16");
  return DType::kBF16;
}

std::unique_ptr<plan::WeightSource> InferenceArguments::open_weights(const plan::ModelSource& source,
                                                                     const plan::RunPlan& plan) const {
  plan::ModelSource from = source;
  if (init == "random") from.directory = from.weights = "";
  auto weights = train::open_weights(from, plan);
  if (adapter.empty()) return weights;
  return std::make_unique<plan::MergedWeights>(std::move(weights), adapter, plan.model);
}

bool parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return true;
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::kUsage, error.what(), "; ", app.get_name(), " --help lists the flags");
  }
  return false;
}

}  // namespace intarsia::cli
