#include "intarsia/formats/peers/open_checkpoint.h"

#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/archive_reader.h"
#include "intarsia/formats/peers/dcp_checkpoint.h"
#include "intarsia/formats/peers/deepspeed_reader.h"
#include "intarsia/formats/peers/full_state_dict.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::exists(fs::path(folder) / name, error);
}

void refuse_by_name(const std::string& folder) {
  const auto megatron = [&](const std::string& what) {
    fail(ErrorKind::kUnsupported, printable(folder), " is a checkpoint of Megatron-LM (it has ", printable(what),
         "), which is not read; convert it once with Megatron's own tools to Hugging Face format");
  };
  for (const char* name : {"latest_checkpointed_iteration.txt", "model_optim_rng.pt"})
    if (has(folder, name)) megatron(name);
  if (has(folder, "common.pt") && has(folder, "metadata.json")) megatron("common.pt");
  for (const std::string& name : io::list_directory(folder)) {
    if (has((fs::path(folder) / name).string(), "model_optim_rng.pt")) megatron(name + "/model_optim_rng.pt");
    INTARSIA_CHECK(kUnsupported,
                   !(name.starts_with("pytorch_model") && name.find("_rank") != name.npos && name.ends_with(".bin")),
                   printable(folder), " has ", printable(name),
                   ": a LOCAL_STATE_DICT of FSDP, whose layout only that run knows, is not read; save with "
                   "SHARDED_STATE_DICT or FULL_STATE_DICT");
  }
}

bool is_one(const std::string& path) {
  return is_deepspeed(path) || is_dcp(path) || is_full_folder(path) || is_dcp_safetensors(path);
}

bool has_hf_weights(const std::string& folder) {
  return has(folder, "model.safetensors") || has(folder, "model.safetensors.index.json") ||
         has(folder, "pytorch_model.bin") || has(folder, "pytorch_model.bin.index.json");
}

}  // namespace

std::string find_peer_checkpoint(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || is_one(path)) return path;
  const std::string inner = (fs::path(path) / "checkpoints").string();
  for (const std::string& folder : {path, inner}) {
    if (!fs::is_directory(folder, error)) continue;
    for (const char* prefix : {"global_step", "checkpoint-", "checkpoint_"})
      if (const std::string name = highest_numbered(folder, prefix, is_one); !name.empty())
        return (fs::path(folder) / name).string();
  }
  return path;
}

bool is_peer_checkpoint(const std::string& path) { return is_one(find_peer_checkpoint(path)); }

bool needs_reader(const std::string& path) {
  return !has_hf_weights(path) &&
         (is_peer_checkpoint(path) || is_dcp_safetensors((fs::path(path) / "sharded").string()));
}

LogicalCheckpoint open_checkpoint(const std::string& given) {
  std::error_code error;
  INTARSIA_CHECK(kUsage, fs::exists(given, error), printable(given), ": no such file or folder");
  const std::string path = find_peer_checkpoint(given);
  if (!fs::is_directory(path, error)) {
    if (path.ends_with(".safetensors")) return open_safetensors_weights(path);
    for (const char* suffix : {".pt", ".pth", ".bin"})
      if (path.ends_with(suffix)) return open_full_state_dict(path);
    fail(ErrorKind::kUnsupported, printable(path),
         " is no checkpoint that is read: files are .safetensors, .pt, .pth or .bin; of DeepSpeed's and DCP's "
         "checkpoints give the folder");
  }
  refuse_by_name(path);
  if (is_deepspeed(path)) return open_deepspeed(path);
  if (is_dcp(path)) return open_dcp(path);
  if (is_full_folder(path)) return open_full_folder(path);
  if (is_dcp_safetensors(path)) return open_dcp_safetensors(path);
  if (has_hf_weights(path)) return open_hf_weights(path);
  if (is_dcp_safetensors((fs::path(path) / "sharded").string()))
    return open_dcp_safetensors((fs::path(path) / "sharded").string());
  fail(ErrorKind::kFormat, printable(path),
       " holds no checkpoint that is read: no \"latest\" and *_model_states.pt (DeepSpeed), no .metadata (DCP), no "
       "pytorch_model_fsdp.bin, no model.safetensors");
}

std::optional<std::string> find_config_folder(const std::string& path) {
  fs::path folder(path);
  std::error_code error;
  if (folder.filename().empty()) folder = folder.parent_path();
  if (!fs::is_directory(folder, error)) folder = folder.parent_path();
  for (int level = 0; level < 3; ++level) {
    const std::string text = folder.empty() ? "." : folder.string();
    if (has(text, "config.json")) return text;
    if (folder.empty() || folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  return std::nullopt;
}

}  // namespace intarsia::formats
