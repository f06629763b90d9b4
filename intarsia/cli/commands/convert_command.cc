#include "intarsia/cli/commands/convert_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <string>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/commands/byte_progress.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/cli/commands/stop_signal.h"
#include "intarsia/formats/gguf/gguf_to_hf.h"

namespace intarsia::cli {
namespace {

struct Arguments {
  std::string source, destination, to = "hf", dtype = "fp32";
};

DType dtype_of(const std::string& word) {
  return word == "bf16" ? DType::kBF16 : word == "fp16" ? DType::kF16 : DType::kF32;
}

int run(const Arguments& arguments) {
  INTARSIA_CHECK(kUnsupported, arguments.source.ends_with(".gguf"), "convert ", printable(arguments.source),
                 ": only GGUF files (.gguf) are converted yet");
  const formats::GgufFile file = formats::GgufFile::open(arguments.source);
  std::optional<ByteProgress> progress;
  formats::gguf_to_hf(file, arguments.destination, dtype_of(arguments.dtype),
                      [&](std::int64_t done, std::int64_t total) {
                        StopSignal::check();
                        if (!progress) progress.emplace("converting", total);
                        progress->update(done);
                      });
  if (progress) progress->clear();
  log_note(concat("wrote ", arguments.destination, ": ", file.tensors().size(), " tensors in ", arguments.dtype,
                  ", config.json and the tokenizer"));
  return 0;
}

}  // namespace

int convert_command(int argc, char** argv) {
  CLI::App app(
      "Writes a model in another format.\n"
      "SRC is a GGUF file (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q6_K); DST a new folder, which becomes a Hugging Face\n"
      "directory: config.json, model.safetensors, tokenizer.json.",
      "intarsia convert");
  Arguments arguments;
  app.add_option("SRC", arguments.source, "what to read")->required()->type_name("");
  app.add_option("DST", arguments.destination, "where to write")->required()->type_name("");
  app.add_option("--to", arguments.to, "format to write: hf [hf]")->check(CLI::IsMember({"hf"}));
  app.add_option("--dtype", arguments.dtype, "of the weights: fp32 (exact), bf16 or fp16 [fp32]")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  return run_app(app, argc, argv, "intarsia convert", "stopped; the weights were not written",
                 [&] { return run(arguments); });
}

}  // namespace intarsia::cli
