#include "intarsia/cli/prefix.h"

namespace intarsia::cli {

std::filesystem::path installation_prefix() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

}  // namespace intarsia::cli
