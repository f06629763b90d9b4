// intarsia generate: continues a text, or answers in a chat.
#include <iostream>

#include "intarsia/base/error.h"
#include "intarsia/cli/rank_commands/inference_arguments.h"
#include "intarsia/cli/rank_commands/line_reader.h"
#include "intarsia/cli/rank_commands/rank_commands.h"
#include "intarsia/cli/rank_commands/ranks.h"
#include "intarsia/train/chat.h"
#include "intarsia/train/generate.h"
#include "intarsia/train/process.h"

namespace intarsia::cli {
namespace {

struct GenerateArguments : InferenceArguments {
  train::GenerateOptions options;
  std::optional<std::string> prompt;
  std::string system;
  bool chat = false;
};

void check(const GenerateArguments& arguments) {
  const train::GenerateOptions& options = arguments.options;
  INTARSIA_CHECK(kUsage, options.max_new_tokens >= 1, "--max-new-tokens ", options.max_new_tokens,
                 "; allowed: 1 or more");
  INTARSIA_CHECK(kUsage, options.temperature >= 0, "--temperature ", options.temperature, "; allowed: 0 or more");
  INTARSIA_CHECK(kUsage, options.top_p > 0 && options.top_p <= 1, "--top-p ", options.top_p,
                 "; allowed: above 0, to 1");
  INTARSIA_CHECK(kUsage, arguments.chat || arguments.prompt,
                 "--prompt is missing: give the text to continue, or --chat to talk with the model");
  INTARSIA_CHECK(kUsage, arguments.chat || arguments.system.empty(), "--system without --chat; add --chat");
}

// Writes text as it is generated, and keeps it.
class Writer {
 public:
  Writer(const GenerateArguments& arguments, const formats::HfConfig& config, const formats::Tokenizer& tokenizer,
         shard::Engine& engine, models::Model& model)
      : options_(arguments.options),
        max_positions_(config.max_position_embeddings),
        tokenizer_(tokenizer),
        engine_(engine),
        model_(model) {}

  std::string write(std::vector<std::int64_t> ids) {
    formats::StreamDecoder decoder(tokenizer_, true);
    std::string text;
    const auto put = [&](const std::string& piece) {
      text += piece;
      std::cout << piece << std::flush;
    };
    train::generate(engine_, model_, max_positions_, std::move(ids), options_, cache_, [&](std::int64_t id) {
      put(decoder.push(static_cast<std::int32_t>(id)));
      return !train::stop_requested();
    });
    put(decoder.finish());
    std::cout << std::endl;
    return text;
  }

 private:
  const train::GenerateOptions& options_;
  std::int64_t max_positions_;
  const formats::Tokenizer& tokenizer_;
  shard::Engine& engine_;
  models::Model& model_;
  models::KeyValueCache cache_;  // over all turns of a chat
};

void talk(const GenerateArguments& arguments, train::Conversation& conversation, Writer& writer) {
  if (arguments.prompt) {
    writer.write(conversation.ask(*arguments.prompt));
    return;
  }
  LineReader lines(train::stop_requested);
  while (const auto words = lines.next()) conversation.answered(writer.write(conversation.ask(*words)));
}

}  // namespace

int generate_command(int argc, char** argv) {
  CLI::App app("Continues a text with a model, or talks with it.", "intarsia generate");
  GenerateArguments arguments;
  train::GenerateOptions& options = arguments.options;
  arguments.add_to(app);
  app.add_option("--prompt", arguments.prompt, "text to continue; with --chat what to say [lines of standard input]");
  app.add_flag("--chat", arguments.chat,
               "say it as the user, in the words of the model's chat template; without --prompt line by line, until "
               "Ctrl-D");
  app.add_option("--system", arguments.system, "system message of the chat [what the template says]");
  app.add_option("--max-new-tokens", options.max_new_tokens,
                 "tokens to add at the most [128; with --chat 512, or half of the model's maximum]");
  app.add_option("--temperature", options.temperature, "0 takes the most likely token; larger: more varied [0]");
  app.add_option("--top-p", options.top_p, "choose among the most likely tokens of this probability together [1]");
  if (parse_arguments(app, argc, argv)) return 0;
  check(arguments);
  options.seed = arguments.seed;

  const plan::ModelSource model = plan::find_model(arguments.model);
  const std::int64_t positions = model.config.max_position_embeddings;
  if (arguments.chat && app.count("--max-new-tokens") == 0)
    options.max_new_tokens = std::min<std::int64_t>(512, positions / 2);
  const std::optional<formats::Tokenizer> tokenizer = train::find_tokenizer(model);
  INTARSIA_CHECK(kConfig, tokenizer.has_value(), arguments.model,
                 " has no tokenizer.json: generate needs one to read the prompt; put it beside config.json");
  const auto chat = arguments.chat ? formats::ChatFormat::find(model.directory) : std::nullopt;
  INTARSIA_CHECK(kConfig, !arguments.chat || chat, "--chat: ", arguments.model,
                 " has no chat template; put chat_template.jinja beside config.json, or leave --chat out");
  options.stop_ids = train::stop_ids(model.config, &*tokenizer, chat ? &*chat : nullptr);
  std::optional<train::Conversation> conversation;
  if (chat) {
    const std::int64_t room = positions - options.max_new_tokens;
    INTARSIA_CHECK(kUsage, room >= 1, "--max-new-tokens ", options.max_new_tokens, " leaves no room for a question in ",
                   positions, " positions; allowed with --chat: up to ", positions - 1);
    conversation.emplace(*chat, *tokenizer, room, arguments.system);
  }
  plan::RunPlan plan = plan::make_inference_plan(model.config, 1, arguments.compute_dtype());
  plan.seed = arguments.seed;
  plan.threads = arguments.threads > 0 ? arguments.threads : static_cast<int>(launch::read_cores().all.size());

  return run_ranks({}, plan, launch::Bind::kNone, [&](const comm::DataAxes& axes) {
    train::catch_stop_signals();
    const auto weights = arguments.open_weights(model, plan);
    shard::Engine engine(plan, axes, *weights);
    const auto network = models::make_model(model.config, plan);
    Writer writer(arguments, model.config, *tokenizer, engine, *network);
    if (conversation) {
      talk(arguments, *conversation, writer);
    } else {
      const std::vector<std::int32_t> ids = tokenizer->encode(*arguments.prompt, true);
      std::cout << *arguments.prompt << std::flush;
      writer.write({ids.begin(), ids.end()});
    }
    return train::stop_requested() ? 130 : 0;
  });
}

}  // namespace intarsia::cli
