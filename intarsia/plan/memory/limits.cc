#include "intarsia/plan/memory/limits.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::plan {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> read_number(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  if (in >> value) return value;  // "max" is no number
  return std::nullopt;
}

void tighten(MemoryLimit& limit, std::optional<std::int64_t> bytes, const std::string& from) {
  if (!bytes || *bytes <= 0 || (limit.bytes > 0 && *bytes >= limit.bytes)) return;
  limit = {*bytes, from};
}

// A group's limit counts for all groups inside it.
void tighten_upwards(MemoryLimit& limit, const fs::path& mount, std::string group, const char* file) {
  for (;;) {
    const fs::path folder = mount / fs::path(group).relative_path();
    tighten(limit, read_number(folder / file), concat("control group ", folder.string()));
    if (group.empty() || group == "/") return;
    group = fs::path(group).parent_path().string();
  }
}

}  // namespace

MemoryLimit read_memory_limit(const std::string& root) {
  MemoryLimit limit;
  std::ifstream memory(root + "/proc/meminfo");
  for (std::string word; memory >> word;) {
    if (word != "MemTotal:") continue;
    std::int64_t kib = 0;
    if (memory >> kib) tighten(limit, kib * 1024, "the machine");
    break;
  }
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", or "0::/a/b" of version 2
    std::istringstream in(line);
    std::string number, controllers, group;
    std::getline(in, number, ':');
    std::getline(in, controllers, ':');
    std::getline(in, group);
    if (controllers == "memory") tighten_upwards(limit, root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
    if (controllers.empty()) tighten_upwards(limit, root + "/sys/fs/cgroup", group, "memory.max");
  }
  return limit;
}

HostNeed host_need(const StepReplay& replay, int local_ranks) {
  const auto highest = [&](Holding holding) {
    std::int64_t bytes = 0;
    for (const Moment& moment : replay.timeline) bytes = std::max(bytes, moment[holding]);
    return bytes;
  };
  const double kept =
      kKeptOfReduction * static_cast<double>(highest(Holding::kReduce)) +
      (std::ranges::any_of(replay.timeline, &Moment::recomputed) ? kKeptOfRecomputed : kKeptOfActivations) *
          static_cast<double>(highest(Holding::kActivations));
  const std::int64_t beside = static_cast<std::int64_t>(kept) + kRankBaseBytes;
  return {.rank_peak = replay.peak_bytes(), .host = local_ranks * (replay.peak_bytes() + beside) + kHostBaseBytes};
}

std::string does_not_fit(const HostNeed& need, const MemoryLimit& limit, const RunPlan& plan) {
  if (limit.bytes == 0 || need.host <= limit.bytes) return "";
  std::string advice;
  if (plan.recompute.policy == Recompute::kNone) advice += "--recompute full, ";
  if (plan.ranks > 1 && plan.stage < 3) advice += concat("--stage ", plan.stage + 1, ", ");
  if (plan.micro_batch > 1) advice += "a smaller --batch-size (with more --accumulation), ";
  if (plan.compute_dtype == DType::kF32) advice += "--dtype bf16, ";
  return concat("the run needs ", format_bytes(need.host), " on this host (", format_bytes(need.rank_peak),
                " a rank at its peak), ", limit.from, " has ", format_bytes(limit.bytes), "; try ", advice,
                "a smaller model, or --force to start anyway; `intarsia plan` with the same flags shows what takes it");
}

}  // namespace intarsia::plan
