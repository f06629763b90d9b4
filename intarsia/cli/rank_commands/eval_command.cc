// intarsia eval: loss, perplexity and bits per byte of a model on data; optionally its logits.
#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/cli/rank_commands/inference_arguments.h"
#include "intarsia/cli/rank_commands/rank_commands.h"
#include "intarsia/cli/rank_commands/ranks.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/train/evaluate.h"

namespace intarsia::cli {
namespace {

// Writes [N, S, V] fp32 logits, micro-batch by micro-batch.
class LogitsFile {
 public:
  LogitsFile(const std::string& path, const data::Dataset& dataset, std::int64_t vocab_size)
      : writer_(formats::SafetensorsWriter::create(
            path, formats::layout_safetensors({{.name = "logits",
                                                .dtype = DType::kF32,
                                                .shape = {dataset.num_samples(), dataset.seq_len(), vocab_size}}}))),
        row_bytes_(dataset.seq_len() * vocab_size * 4) {}
  void write(std::int64_t first, const at::Tensor& logits) {
    const at::Tensor rows = logits.contiguous();
    writer_.write_at(0, static_cast<std::uint64_t>(first * row_bytes_),
                     {static_cast<const std::byte*>(rows.const_data_ptr()), rows.nbytes()});
  }
  void finish() { writer_.finish(); }

 private:
  formats::SafetensorsWriter writer_;
  std::int64_t row_bytes_;
};

void print(const train::Evaluation& evaluation, bool json) {
  nlohmann::ordered_json out{{"loss", evaluation.loss},
                             {"perplexity", evaluation.perplexity},
                             {"bits_per_byte", nullptr},
                             {"tokens", evaluation.tokens},
                             {"samples", evaluation.samples}};
  if (evaluation.bits_per_byte) out["bits_per_byte"] = *evaluation.bits_per_byte;
  if (json) {
    std::cout << out.dump() << "\n";
    return;
  }
  for (const auto& [key, value] : out.items()) std::cout << key << ": " << value << "\n";
}

}  // namespace

int eval_command(int argc, char** argv) {
  CLI::App app("Evaluates a model on data: loss, perplexity, bits per byte.", "intarsia eval");
  InferenceArguments arguments;
  arguments.add_to(app);
  data::DataOptions data_options;
  std::int64_t batch = 1;
  std::string logits_path;
  bool json = false;
  app.add_option("--data", data_options.paths, "files as for train")->required();
  app.add_option("--ranks", arguments.ranks, "local ranks; the weights are sharded over them [1]");
  std::string train_on = "assistant";
  app.add_option("--train-on", train_on, "of chats and completions: assistant or all [assistant]")
      ->check(CLI::IsMember({"assistant", "all"}));
  app.add_option("--seq-len", data_options.seq_len, "tokens of a sample [min(2048, the model's maximum)]");
  app.add_option("--batch-size", batch, "samples of one rank in one pass [1]");
  app.add_option("--logits", logits_path, "safetensors file for the logits [N, S, vocabulary], fp32");
  app.add_flag("--json", json, "print one JSON object");
  if (parse_arguments(app, argc, argv)) return 0;
  INTARSIA_CHECK(kUsage, batch >= 1, "--batch-size ", batch, "; allowed: 1 or more");

  const RankSource source = find_ranks(app.count("--ranks") > 0 ? std::optional(arguments.ranks) : std::nullopt);
  const plan::ModelSource model = plan::find_model(arguments.model);
  plan::RunPlan plan = plan::make_inference_plan(model.config, source.ranks, arguments.compute_dtype());
  plan.seed = arguments.seed;
  plan.backend = effective_backend(source, plan.backend);
  plan.threads =
      arguments.threads > 0
          ? arguments.threads
          : std::max(1, static_cast<int>(launch::read_cores().all.size()) /
                            (source.environment ? source.environment->local_world.value_or(1) : source.ranks));
  const std::optional<formats::Tokenizer> tokenizer = train::find_tokenizer(model);
  data_options.seq_len = plan::sequence_length(data_options.seq_len, model.config);
  data_options.vocab_size = model.config.vocab_size;
  data_options.tail = data::Tail::kPad;
  data_options.tokenizer = tokenizer ? &*tokenizer : nullptr;
  const auto chat = model.directory.empty() ? std::nullopt : formats::ChatFormat::find(model.directory);
  data_options.chat = chat ? &*chat : nullptr;
  if (train_on == "all") data_options.train_on = formats::TrainOn::kAll;
  const auto dataset = data::open_dataset(data_options);

  return run_ranks(source, plan, launch::Bind::kNone, [&](const comm::DataAxes& axes) {
    const auto weights = arguments.open_weights(model, plan);
    shard::Engine engine(plan, axes, *weights);
    const auto network = models::make_model(model.config, plan);
    std::optional<LogitsFile> file;
    if (!logits_path.empty() && axes.world.rank() == 0) file.emplace(logits_path, *dataset, model.config.vocab_size);
    train::LogitsSink sink;
    if (!logits_path.empty()) sink = [&](std::int64_t first, const at::Tensor& logits) { file->write(first, logits); };
    const train::Evaluation evaluation =
        train::evaluate(engine, *network, *dataset, batch, tokenizer ? &*tokenizer : nullptr, sink);
    if (file) file->finish();
    if (axes.world.rank() == 0) print(evaluation, json);
    return 0;
  });
}

}  // namespace intarsia::cli
