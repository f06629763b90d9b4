// intarsia generate: continues a text.
#include <iostream>

#include "intarsia/base/error.h"
#include "intarsia/cli/rank_commands/inference_arguments.h"
#include "intarsia/cli/rank_commands/rank_commands.h"
#include "intarsia/cli/rank_commands/ranks.h"
#include "intarsia/train/generate.h"
#include "intarsia/train/process.h"

namespace intarsia::cli {

int generate_command(int argc, char** argv) {
  CLI::App app("Continues a text with a model.", "intarsia generate");
  InferenceArguments arguments;
  arguments.add_to(app);
  train::GenerateOptions options;
  std::string prompt;
  app.add_option("--prompt", prompt, "text to continue")->required();
  app.add_option("--max-new-tokens", options.max_new_tokens, "tokens to add at the most [128]");
  app.add_option("--temperature", options.temperature, "0 takes the most likely token; larger: more varied [0]");
  app.add_option("--top-p", options.top_p, "choose among the most likely tokens of this probability together [1]");
  if (parse_arguments(app, argc, argv)) return 0;
  INTARSIA_CHECK(kUsage, options.max_new_tokens >= 1, "--max-new-tokens ", options.max_new_tokens,
                 "; allowed: 1 or more");
  INTARSIA_CHECK(kUsage, options.temperature >= 0, "--temperature ", options.temperature, "; allowed: 0 or more");
  INTARSIA_CHECK(kUsage, options.top_p > 0 && options.top_p <= 1, "--top-p ", options.top_p,
                 "; allowed: above 0, to 1");
  options.seed = arguments.seed;

  const plan::ModelSource model = plan::find_model(arguments.model);
  const std::optional<formats::Tokenizer> tokenizer = train::find_tokenizer(model);
  INTARSIA_CHECK(kConfig, tokenizer.has_value(), arguments.model,
                 " has no tokenizer.json: generate needs one to read the prompt; put it beside config.json");
  options.stop_ids = model.config.eos_token_ids;
  if (const auto end = tokenizer->end_of_text()) options.stop_ids.push_back(*end);
  plan::RunPlan plan = plan::make_inference_plan(model.config, 1, arguments.compute_dtype());
  plan.seed = arguments.seed;
  plan.threads = arguments.threads > 0 ? arguments.threads : static_cast<int>(launch::read_cores().all.size());

  return run_ranks({}, plan, launch::Bind::kNone, [&](const comm::DataAxes& axes) {
    train::catch_stop_signals();
    const auto weights = arguments.open_weights(model, plan);
    shard::Engine engine(plan, axes, *weights);
    const auto network = models::make_model(model.config, plan);
    const std::vector<std::int32_t> ids = tokenizer->encode(prompt, true);
    formats::StreamDecoder decoder(*tokenizer, true);
    std::cout << prompt << std::flush;
    train::generate(engine, *network, model.config.max_position_embeddings, {ids.begin(), ids.end()}, options,
                    [&](std::int64_t id) {
                      std::cout << decoder.push(static_cast<std::int32_t>(id)) << std::flush;
                      return !train::stop_requested();
                    });
    std::cout << decoder.finish() << "\n";
    return train::stop_requested() ? 130 : 0;
  });
}

}  // namespace intarsia::cli
