// intarsia doctor: what this machine offers and what Intarsia found.
#include <ATen/ATen.h>
#include <ATen/Version.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "intarsia/base/text.h"
#include "intarsia/cli/rank_commands/inference_arguments.h"
#include "intarsia/cli/rank_commands/rank_commands.h"
#include "intarsia/comm/mesh.h"
#include "intarsia/launch/bind.h"
#include "intarsia/launch/environment.h"

namespace intarsia::cli {
namespace {

// Libraries of this process whose name contains `part`: two OpenMP runtimes, say, would be seen here.
std::set<std::string> mapped_libraries(const std::string& part) {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash != std::string::npos && line.find(part, slash) != std::string::npos) found.insert(line.substr(slash));
  }
  return found;
}

std::string memory_line(const char* key) {
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;) {
    if (word != key) continue;
    std::int64_t kib = 0;
    info >> kib;
    return format_bytes(kib * 1024);
  }
  return "unknown";
}

void line(const std::string& name, const std::string& value) {
  std::cout << name << std::string(name.size() < 14 ? 14 - name.size() : 1, ' ') << value << "\n";
}

// The instruction sets that the kernel lists; empty where it lists none.
std::string cpu_flags() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string text; std::getline(info, text);)
    if (text.starts_with("flags")) return text;
  return "";
}

}  // namespace

int doctor_command(int argc, char** argv) {
  CLI::App app("Says what this machine offers to Intarsia, and tries shared memory.", "intarsia doctor");
  if (parse_arguments(app, argc, argv)) return 0;
  line("intarsia", INTARSIA_VERSION);
  line("torch", TORCH_VERSION);
  line("cores", concat(launch::read_cores().all.size(), " usable by this process"));
  line("vectors", at::get_cpu_capability());
  const std::string flags = cpu_flags();
  const bool fast_bf16 =
      flags.find(" avx512_bf16") != std::string::npos || flags.find(" amx_bf16") != std::string::npos;
  line("bf16", fast_bf16 ? "fast here" : "works, but slower than fp32 here (neither AMX nor AVX512-BF16)");
  line("memory", concat(memory_line("MemTotal:"), ", available ", memory_line("MemAvailable:")));
  const auto space = std::filesystem::space(std::filesystem::current_path());
  line("disk here", concat(format_bytes(static_cast<std::int64_t>(space.available)), " free"));
  const auto openmp = mapped_libraries("libgomp");
  line("openmp", openmp.empty() ? "not loaded" : join({openmp.begin(), openmp.end()}));
  const auto environment = launch::read_environment(launch::process_variables(), "doctor");
  line("launcher", environment ? concat(environment->launcher, ": rank ", environment->rank, " of ", environment->world)
                               : "none: --ranks starts local ranks");
  plan::RunPlan plan;
  plan.ranks = 2;
  line("shared memory", concat(comm::shared_regions_for(plan, 1 << 20).world != nullptr ? "works" : "not available"));
  if (openmp.size() > 1) {
    line("problem", "two OpenMP runtimes are loaded: expect crashes or slow steps");
    return 1;
  }
  return 0;
}

}  // namespace intarsia::cli
