#include "intarsia/checkpoint/open_native.h"
#include "intarsia/checkpoint/write_native.h"
#include "intarsia/cli/rank_commands/rank_commands.h"

namespace intarsia::cli {

formats::LogicalCheckpoint open_any(const std::string& path, bool verify) {
  const std::string native = find_native(path);
  return native.empty() ? open_peer(path, verify) : checkpoint::open_native(native, verify);
}

int convert_any(int argc, char** argv) {
  return convert_command(
      argc, argv, open_any,
      [](const formats::LogicalCheckpoint& checkpoint, const std::string& run, const formats::PeerState& state,
         const std::string& model_config, const formats::WriteProgress& progress) {
        checkpoint::write_native(checkpoint, run, state, model_config, progress);
      });
}
int inspect_any(int argc, char** argv) { return inspect_command(argc, argv, open_any); }
int diff_any(int argc, char** argv) { return diff_command(argc, argv, open_any); }

}  // namespace intarsia::cli
