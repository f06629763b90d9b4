#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/commands/byte_progress.h"
#include "intarsia/cli/commands/checkpoint_commands.h"
#include "intarsia/cli/commands/merge_adapter.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/cli/commands/stop_signal.h"
#include "intarsia/formats/adapter_config.h"
#include "intarsia/formats/gguf/gguf_to_hf.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/formats/peers/write_hf.h"
#include "intarsia/plan/checkpoint_weights.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string source, destination, to = "hf", dtype, model, optimizer_state;
};

DType dtype_of(const std::string& word) {
  return word == "bf16" ? DType::kBF16 : word == "fp16" ? DType::kF16 : DType::kF32;
}

// Ctrl-C ends the pass, and a line says how far it is.
class Pass {
 public:
  void operator()(std::int64_t done, std::int64_t total) {
    StopSignal::check();
    if (!progress_) progress_.emplace("converting", total);
    progress_->update(done);
  }
  void end() {
    if (progress_) progress_->clear();
  }

 private:
  std::optional<ByteProgress> progress_;
};

int convert_gguf(const Arguments& arguments) {
  const formats::GgufFile file = formats::GgufFile::open(arguments.source);
  Pass pass;
  formats::gguf_to_hf(file, arguments.destination, dtype_of(arguments.dtype), std::ref(pass));
  pass.end();
  log_note(concat("wrote ", arguments.destination, ": ", file.tensors().size(), " tensors in ", arguments.dtype,
                  ", config.json and the tokenizer"));
  return 0;
}

// The folder of --model, or the one that belongs to the checkpoint; empty: none.
std::string config_folder(const Arguments& arguments) {
  if (arguments.model.empty()) return formats::find_config_folder(arguments.source).value_or("");
  const fs::path path(arguments.model);
  const fs::path folder = fs::is_directory(path)       ? path
                          : path.parent_path().empty() ? fs::path(".")
                                                       : path.parent_path();
  INTARSIA_CHECK(kUsage,
                 fs::exists(folder / "config.json") && (fs::is_directory(path) || path.filename() == "config.json"),
                 "--model ", printable(arguments.model), ": give a config.json, or the folder that has one");
  return folder.string();
}

int convert_checkpoint(const Arguments& arguments, const OpenCheckpoint& open) {
  formats::HfWrite options{.dtype = dtype_of(arguments.dtype), .optimizer_state = arguments.optimizer_state};
  formats::LogicalCheckpoint checkpoint = open(arguments.source, true);
  options.copy_from = config_folder(arguments);
  std::optional<formats::HfConfig> config;
  if (arguments.model.empty() && !checkpoint.config().empty()) {
    config = formats::parse_hf_config(checkpoint.config(), concat(arguments.source, ": the model's config"));
  } else if (!options.copy_from.empty()) {
    config = formats::read_hf_config(options.copy_from);
  }
  std::optional<plan::CheckpointWeights> accounted;
  if (config) {
    // Every tensor is accounted for before any is written.
    const plan::ModelSpec spec = plan::model_spec(*config);
    accounted.emplace(std::move(checkpoint), spec);
    for (const plan::ParamSpec& param : spec.params)
      options.weights.emplace_back(param.name, accounted->find("weight", param));
    config->dtype = options.dtype;
    options.config = formats::hf_config_text(*config);
  }
  const formats::LogicalCheckpoint& source = accounted ? accounted->checkpoint() : checkpoint;
  Pass pass;
  formats::write_hf(source, arguments.destination, options, std::ref(pass));
  pass.end();
  log_note(concat(
      "read ", arguments.source, " (", source.format(), "); wrote ", arguments.destination, " in ", arguments.dtype,
      config ? "" : " without config.json, as none was found: give --model config.json",
      options.optimizer_state.empty() ? "" : concat(", and the optimizer's state to ", options.optimizer_state)));
  return 0;
}

int convert_adapter(const Arguments& arguments) {
  INTARSIA_CHECK(kUsage, arguments.optimizer_state.empty(), "convert ", printable(arguments.source),
                 ": an adapter has no optimizer state; leave out --optimizer-state");
  Pass pass;
  const std::optional<DType> dtype = arguments.dtype.empty() ? std::nullopt : std::optional(dtype_of(arguments.dtype));
  const MergedModel merged =
      merge_adapter(arguments.source, arguments.model, arguments.destination, dtype, std::ref(pass));
  pass.end();
  log_note(concat("wrote ", arguments.destination, ": ", merged.tensors, " tensors, the adapter merged into ",
                  merged.layers, " of them"));
  return 0;
}

int run(Arguments arguments, const OpenCheckpoint& open) {
  if (formats::is_adapter_directory(arguments.source)) return convert_adapter(arguments);
  if (arguments.dtype.empty()) arguments.dtype = "fp32";
  if (!arguments.source.ends_with(".gguf")) return convert_checkpoint(arguments, open);
  INTARSIA_CHECK(
      kUsage, arguments.model.empty() && arguments.optimizer_state.empty(), "convert ", printable(arguments.source),
      ": a GGUF file brings its own config and has no optimizer state; leave out ", "--model and --optimizer-state");
  return convert_gguf(arguments);
}

}  // namespace

int convert_command(int argc, char** argv, const OpenCheckpoint& open) {
  CLI::App app(
      "Writes a model in another format.\n"
      "SRC is a checkpoint of DeepSpeed (ZeRO-1, 2, 3, universal), of PyTorch (DCP of FSDP1 and FSDP2, Accelerate,\n"
      "torchtitan; FULL_STATE_DICT), of Intarsia (also a RUN), a Hugging Face model or a file of weights, or a GGUF\n"
      "file (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q6_K), or a LoRA adapter (a PEFT directory), which is merged into "
      "--model.\n"
      "DST is a new folder, which becomes a Hugging Face directory: config.json, model.safetensors, tokenizer.json.",
      "intarsia convert");
  Arguments arguments;
  app.add_option("SRC", arguments.source, "what to read")->required()->type_name("");
  app.add_option("DST", arguments.destination, "where to write")->required()->type_name("");
  app.add_option("--to", arguments.to, "format to write: hf [hf]")->check(CLI::IsMember({"hf"}));
  app.add_option("--dtype", arguments.dtype,
                 "of the weights: fp32, bf16 or fp16 [fp32; merged with an adapter: as in the model]")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--model", arguments.model,
                 "the model's config.json, or its folder [beside SRC, or up to two above]; of an adapter the model")
      ->type_name("");
  app.add_option("--optimizer-state", arguments.optimizer_state,
                 "also write the optimizer's state to this file: exp_avg.NAME, exp_avg_sq.NAME, fp32")
      ->type_name("");
  return run_app(app, argc, argv, "intarsia convert", "stopped; the weights were not written",
                 [&] { return run(arguments, open); });
}

}  // namespace intarsia::cli
