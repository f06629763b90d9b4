#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>
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
#include "intarsia/cli/commands/peer_state_of.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/cli/commands/stop_signal.h"
#include "intarsia/formats/adapter_config.h"
#include "intarsia/formats/gguf/gguf_to_hf.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/formats/peers/write_dcp.h"
#include "intarsia/formats/peers/write_hf.h"
#include "intarsia/formats/peers/write_universal.h"
#include "intarsia/plan/checkpoint_weights.h"
#include "intarsia/plan/make_run_plan.h"

namespace intarsia::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string source, destination, to = "hf", dtype, model, optimizer_state, max_shard_size;
  std::int64_t max_shard_bytes = 0;  // 0: no limit
};

DType dtype_of(const std::string& word) {
  return word == "bf16" ? DType::kBF16 : word == "fp16" ? DType::kF16 : DType::kF32;
}

// "5GB", as Hugging Face's save_pretrained has it: powers of 1000; of 1024 with an i.
std::int64_t bytes_of(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"KIB", 1024.0}, {"MIB", 1048576.0}, {"GIB", 1073741824.0}, {"KB", 1e3},
      {"MB", 1e6},     {"GB", 1e9},        {"TB", 1e12},          {"", 1}};
  std::string upper = text;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const auto& [unit, factor] : kUnits) {
    if (!upper.ends_with(unit)) continue;
    double number = 0;
    const char* const end = upper.data() + upper.size() - unit.size();
    const auto [stop, error] = std::from_chars(upper.data(), end, number);
    if (error != std::errc() || stop != end || !(number * factor >= 1) || number * factor > 1e18) break;
    return static_cast<std::int64_t>(number * factor);
  }
  fail(ErrorKind::kUsage, "--max-shard-size ", printable(text), ": expected a number of bytes, with KB, MB, GB, TB, ",
       "KiB, MiB or GiB behind it if you like, such as 5GB");
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

// A checkpoint and what is known of its model. Every tensor is accounted for before any is written, where a config.json
// is found.
class Source {
 public:
  Source(const Arguments& arguments, const OpenCheckpoint& open) : opened_(open(arguments.source, true)) {
    folder_ = config_folder(arguments);
    if (arguments.model.empty() && !opened_->config().empty()) {
      config_ = formats::parse_hf_config(opened_->config(), concat(arguments.source, ": the model's config"));
    } else if (!folder_.empty()) {
      config_ = formats::read_hf_config(folder_);
    }
    if (!config_) return;
    model_ = plan::model_spec(*config_);
    weights_.emplace(std::move(*opened_), *model_);
    opened_.reset();
  }

  const formats::LogicalCheckpoint& checkpoint() const { return weights_ ? weights_->checkpoint() : *opened_; }
  const std::string& folder() const { return folder_; }  // whose tokenizer belongs to the model; may be empty
  const std::optional<formats::HfConfig>& config() const { return config_; }
  const plan::ModelSpec* model() const { return model_ ? &*model_ : nullptr; }
  const plan::CheckpointWeights* weights() const { return weights_ ? &*weights_ : nullptr; }

 private:
  std::optional<formats::LogicalCheckpoint> opened_;  // until `weights_` has it
  std::string folder_;
  std::optional<formats::HfConfig> config_;
  std::optional<plan::ModelSpec> model_;
  std::optional<plan::CheckpointWeights> weights_;
};

int convert_to_hf(const Arguments& arguments, const OpenCheckpoint& open) {
  const Source source(arguments, open);
  formats::HfWrite options{.dtype = dtype_of(arguments.dtype),
                           .max_shard_bytes = arguments.max_shard_bytes,
                           .copy_from = source.folder(),
                           .optimizer_state = arguments.optimizer_state};
  if (source.config()) {
    for (const plan::ParamSpec& param : source.model()->params)
      options.weights.emplace_back(param.name, source.weights()->find("weight", param));
    formats::HfConfig config = *source.config();
    config.dtype = options.dtype;
    options.config = formats::hf_config_text(config);
  }
  Pass pass;
  formats::write_hf(source.checkpoint(), arguments.destination, options, std::ref(pass));
  pass.end();
  log_note(concat(
      "read ", arguments.source, " (", source.checkpoint().format(), "); wrote ", arguments.destination, " in ",
      arguments.dtype, source.config() ? "" : " without config.json, as none was found: give --model config.json",
      options.optimizer_state.empty() ? "" : concat(", and the optimizer's state to ", options.optimizer_state)));
  return 0;
}

// To a checkpoint that a run goes on from: ours, DCP's or DeepSpeed's universal one.
int convert_to_training(const Arguments& arguments, const OpenCheckpoint& open, const WriteNative& write_native) {
  INTARSIA_CHECK(kUsage, arguments.dtype == "fp32", "--dtype ", arguments.dtype, " is for --to hf; --to ", arguments.to,
                 " writes the masters and the optimizer's state in fp32");
  INTARSIA_CHECK(kUsage, arguments.optimizer_state.empty(), "--optimizer-state is for --to hf; --to ", arguments.to,
                 " writes the optimizer's state into DST");
  const Source source(arguments, open);
  const formats::LogicalCheckpoint& checkpoint = source.checkpoint();
  formats::PeerState state = state_of(checkpoint, source.weights(), source.model());
  if (arguments.to != "native") add_groups(state, checkpoint, source.model());
  Pass pass;
  if (arguments.to == "universal") {
    formats::write_universal(checkpoint, arguments.destination, state, std::ref(pass));
  } else if (arguments.to == "native") {
    write_native(checkpoint, arguments.destination, state,
                 source.config() ? formats::hf_config_text(*source.config()) : "", std::ref(pass));
  } else {
    formats::write_dcp(checkpoint, arguments.destination, state,
                       arguments.to == "accelerate" ? formats::DcpLayout::kAccelerate : formats::DcpLayout::kOneFolder,
                       std::ref(pass));
  }
  pass.end();
  const bool only_weights = arguments.to != "native" && state.groups.empty();
  log_note(concat("read ", arguments.source, " (", checkpoint.format(), "); wrote ", arguments.destination, ": ",
                  state.params.size(), " weights",
                  only_weights ? concat(" and no state of the optimizer: ", checkpoint.state().no_optimizer_state)
                               : concat(" and the optimizer's state after ", state.updates, " updates"),
                  source.config() ? ""
                                  : "; no config.json was found, so that names and ties are the checkpoint's: "
                                    "give --model config.json to have them checked"));
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

int run(Arguments arguments, const OpenCheckpoint& open, const WriteNative& write_native) {
  const bool is_adapter = formats::is_adapter_directory(arguments.source),
             is_gguf = arguments.source.ends_with(".gguf");
  INTARSIA_CHECK(kUsage, arguments.to == "hf" || !(is_adapter || is_gguf), "convert ", printable(arguments.source),
                 ": an adapter or a GGUF file has no training state; --to hf is possible");
  INTARSIA_CHECK(kUsage, arguments.max_shard_bytes == 0 || (arguments.to == "hf" && !is_adapter && !is_gguf),
                 "--max-shard-size is for checkpoints that are written with --to hf");
  if (is_adapter) return convert_adapter(arguments);
  if (arguments.dtype.empty()) arguments.dtype = "fp32";
  if (arguments.to != "hf") return convert_to_training(arguments, open, write_native);
  if (!is_gguf) return convert_to_hf(arguments, open);
  INTARSIA_CHECK(
      kUsage, arguments.model.empty() && arguments.optimizer_state.empty(), "convert ", printable(arguments.source),
      ": a GGUF file brings its own config and has no optimizer state; leave out ", "--model and --optimizer-state");
  return convert_gguf(arguments);
}

}  // namespace

int convert_command(int argc, char** argv, const OpenCheckpoint& open, const WriteNative& write_native) {
  CLI::App app(
      "Writes a model in another format.\n"
      "SRC is a checkpoint of DeepSpeed (ZeRO-1, 2, 3, universal), of PyTorch (DCP of FSDP1 and FSDP2, Accelerate,\n"
      "torchtitan; FULL_STATE_DICT), of Intarsia (also a RUN), a Hugging Face model or a file of weights, or a GGUF\n"
      "file (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q6_K), or a LoRA adapter (a PEFT directory), which is merged into "
      "--model.\n"
      "DST is a new folder, which becomes what --to says:\n"
      "  hf          a Hugging Face directory: config.json, model.safetensors, tokenizer.json\n"
      "  dcp         a checkpoint of PyTorch's DCP, {\"model\": ..., \"optim\": ...} as get_state_dict gives them\n"
      "  accelerate  the same in Accelerate's folders, pytorch_model_fsdp_0 and optimizer_0\n"
      "  universal   a universal checkpoint of DeepSpeed\n"
      "  native      a RUN of Intarsia, which train --out DST goes on with",
      "intarsia convert");
  Arguments arguments;
  app.add_option("SRC", arguments.source, "what to read")->required()->type_name("");
  app.add_option("DST", arguments.destination, "where to write")->required()->type_name("");
  app.add_option("--to", arguments.to, "format to write: hf, dcp, accelerate, universal or native [hf]")
      ->check(CLI::IsMember({"hf", "dcp", "accelerate", "universal", "native"}));
  app.add_option("--dtype", arguments.dtype,
                 "of the weights: fp32, bf16 or fp16 [fp32; merged with an adapter: as in the model]")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--model", arguments.model,
                 "the model's config.json, or its folder [beside SRC, or up to two above]; of an adapter the model")
      ->type_name("");
  app.add_option("--optimizer-state", arguments.optimizer_state,
                 "also write the optimizer's state to this file: exp_avg.NAME, exp_avg_sq.NAME, fp32")
      ->type_name("");
  app.add_option("--max-shard-size", arguments.max_shard_size,
                 "with --to hf: the most bytes of weights in one file, such as 5GB or 200MB [all in one]")
      ->type_name("");
  return run_app(app, argc, argv, "intarsia convert", "stopped; the weights were not written", [&] {
    if (!arguments.max_shard_size.empty()) arguments.max_shard_bytes = bytes_of(arguments.max_shard_size);
    return run(arguments, open, write_native);
  });
}

}  // namespace intarsia::cli
