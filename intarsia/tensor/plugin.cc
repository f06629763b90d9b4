#include "intarsia/tensor/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "intarsia/base/error.h"

namespace intarsia::tensor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libintarsia_cuda.so";

fs::path this_program() {
  std::error_code unreadable;
  return fs::read_symlink("/proc/self/exe", unreadable);
}

// The program or shared library that holds this code.
fs::path this_library() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(&this_program), &info) != 0 && info.dli_fname != nullptr
             ? fs::path(info.dli_fname)
             : fs::path();
}

// The build tree has it beside intarsia-rank; so has an installation, where programs of one's own come by way of
// libintarsia.so in lib or lib/ARCHITECTURE.
std::vector<fs::path> candidates() {
  if (const char* named = std::getenv("INTARSIA_CUDA_PLUGIN"); named != nullptr && *named != '\0') return {named};
  return {this_program().parent_path() / kFile, this_program().parent_path() / "../libexec" / kFile,
          this_library().parent_path() / "../libexec" / kFile, this_library().parent_path() / "../../libexec" / kFile};
}

void* load() {
  for (const fs::path& path : candidates()) {
    std::error_code unreadable;
    if (!fs::is_regular_file(path, unreadable)) continue;
    // Not closed again: torch keeps pointers into what it brings along.
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = ::dlerror();
      fail(ErrorKind::kUnsupported, "device cuda: ", path.lexically_normal().string(),
           " cannot be loaded: ", reason == nullptr ? "no reason given" : reason,
           ". It needs libtorch with all of CUDA's libraries: pip install torch with its dependencies, and "
           "INTARSIA_TORCH_DIR naming it when Intarsia is built; or use --device cpu");
    }
    return library;
  }
  fail(ErrorKind::kUnsupported, "device cuda: this build of Intarsia has no CUDA plugin (", kFile,
       "); build it where cuda_runtime.h and nccl.h are found (docs/devices.md), or use --device cpu");
}

}  // namespace

void* cuda_function(const char* name) {
  static void* const library = load();
  void* function = ::dlsym(library, name);
  INTARSIA_CHECK(kUnsupported, function != nullptr, "device cuda: ", kFile, " has no ", name,
                 "; it belongs to another version of Intarsia: build both together");
  return function;
}

}  // namespace intarsia::tensor
