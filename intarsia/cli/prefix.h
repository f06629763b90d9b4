// Where the installation lies that this program belongs to.
#pragma once

#include <filesystem>

namespace intarsia::cli {

// The folder that holds bin/, libexec/ and share/: the parent of the program's own folder, links followed.
std::filesystem::path installation_prefix();

}  // namespace intarsia::cli
