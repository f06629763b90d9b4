#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "intarsia/base/text.h"
#include "intarsia/cli/commands/checkpoint_commands.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/formats/tensor_file.h"

namespace intarsia::cli {
namespace {

using Json = nlohmann::ordered_json;
using formats::LogicalCheckpoint;
using formats::LogicalTensor;

std::int64_t total_bytes(const LogicalCheckpoint& checkpoint) {
  std::int64_t bytes = 0;
  for (const formats::CheckpointFile& file : checkpoint.files()) bytes += static_cast<std::int64_t>(file.bytes);
  return bytes;
}

std::int64_t weight_numel(const LogicalCheckpoint& checkpoint) {
  std::int64_t numel = 0;
  for (const LogicalTensor* tensor : checkpoint.weights()) numel += tensor->numel();
  return numel;
}

// Whether the bytes were compared with checksums.
const char* verified_text(const LogicalCheckpoint& checkpoint, bool verify) {
  if (verify) return checkpoint.has_checksums() ? "yes" : "sizes only, the format has no checksums";
  return "no (--verify compares with checksums)";
}

Json state_json(const formats::TrainingState& state) {
  Json out = Json::object();
  const auto add = [&](const char* key, const auto& value) {
    if (value) out[key] = *value;
  };
  add("step", state.step);
  add("updates", state.updates);
  add("samples", state.samples);
  add("tokens", state.tokens);
  if (state.compute_dtype) out["dtype"] = short_name(*state.compute_dtype);
  if (state.loss_scale)
    out["loss_scale"] = {{"scale", state.loss_scale->scale}, {"dynamic", state.loss_scale->dynamic}};
  if (!state.schedule.empty()) out["schedule"] = state.schedule;
  for (const formats::ParameterGroup& group : state.groups) {
    Json& entry = out["groups"].emplace_back(group.numbers);
    entry["weights"] = group.names.size();
  }
  if (!state.no_optimizer_state.empty()) out["no_optimizer_state"] = state.no_optimizer_state;
  return out;
}

void print_json(const LogicalCheckpoint& checkpoint, bool verify) {
  Json out = {{"path", checkpoint.path()},
              {"format", checkpoint.format()},
              {"ranks", checkpoint.ranks() > 0 ? Json(checkpoint.ranks()) : Json(nullptr)},
              {"files", checkpoint.files().size()},
              {"bytes", total_bytes(checkpoint)},
              {"verified", verify && checkpoint.has_checksums()},
              {"state", state_json(checkpoint.state())},
              {"tied", checkpoint.aliases()},
              {"tensors", Json::array()}};
  for (const LogicalTensor& tensor : checkpoint.tensors())
    out["tensors"].push_back({{"name", tensor.name},
                              {"kind", tensor.kind},
                              {"dtype", safetensors_name(tensor.dtype)},
                              {"shape", tensor.shape},
                              {"pieces", tensor.pieces.size()}});
  std::cout << out.dump(2) << "\n";
}

void print(const LogicalCheckpoint& checkpoint, bool verify) {
  const formats::TrainingState& state = checkpoint.state();
  std::cout << printable(checkpoint.path()) << ": " << checkpoint.format();
  if (checkpoint.ranks() > 0) std::cout << ", written by " << checkpoint.ranks() << " ranks";
  std::cout << "\n  " << checkpoint.files().size() << " files, " << format_bytes(total_bytes(checkpoint)) << "; "
            << checkpoint.weights().size() << " weights, " << weight_numel(checkpoint)
            << " elements\n  verified: " << verified_text(checkpoint, verify) << "\n";
  const Json numbers = state_json(state);
  for (const auto& [key, value] : numbers.items())
    if (key != "no_optimizer_state")
      std::cout << "  " << key << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  if (!state.no_optimizer_state.empty()) std::cout << "  no optimizer state: " << state.no_optimizer_state << "\n";
  for (const auto& [other, name] : checkpoint.aliases())
    std::cout << "  tied: " << printable(other) << " is " << printable(name) << "\n";
  // One line a parameter: the kinds that there are of it.
  std::cout << "\n";
  for (const LogicalTensor* weight : checkpoint.weights()) {
    std::cout << "  " << std::left << std::setw(52) << printable(weight->name) << " " << std::setw(14)
              << formats::shape_text(weight->shape) << " " << weight->kind << " " << short_name(weight->dtype);
    for (const LogicalTensor& other : checkpoint.tensors())
      if (other.name == weight->name && &other != weight) std::cout << ", " << printable(other.kind);
    std::cout << "\n";
  }
}

}  // namespace

int inspect_command(int argc, char** argv, const OpenCheckpoint& open) {
  CLI::App app(
      "Shows what is in a checkpoint or model: format, training state, tensors.\n"
      "PATH is what intarsia convert reads, but no GGUF file: DeepSpeed's, PyTorch's and Intarsia's checkpoints,\n"
      "Hugging Face models, files of weights.",
      "intarsia inspect");
  std::string path;
  bool verify = false, json = false;
  app.add_option("PATH", path, "what to look at")->required()->type_name("");
  app.add_flag("--verify", verify, "compare every file with its checksums");
  app.add_flag("--json", json, "print one JSON object");
  return run_app(app, argc, argv, "intarsia inspect", "stopped", [&] {
    const LogicalCheckpoint checkpoint = open(path, verify);
    json ? print_json(checkpoint, verify) : print(checkpoint, verify);
    return 0;
  });
}

}  // namespace intarsia::cli
