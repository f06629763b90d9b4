#include "intarsia/launch/bind.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::launch {
namespace {

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Bind parse_bind(const std::string& word) {
  if (word == "cores") return Bind::kCores;
  if (word == "numa") return Bind::kNuma;
  if (word == "none") return Bind::kNone;
  fail(ErrorKind::kUsage, "--bind ", printable(word), ": allowed are cores, numa and none");
}

std::vector<int> parse_cpu_list(const std::string& list) {
  std::vector<int> cpus;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const std::size_t dash = item.find('-');
    const auto number = [&](const std::string& text) {
      int value = -1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      INTARSIA_INVARIANT(error == std::errc() && end == text.data() + text.size() && value >= 0 && value < 1 << 16,
                         "list of cores '", printable(list), "'");
      return value;
    };
    const int first = number(item.substr(0, dash));
    const int last = dash == std::string::npos ? first : number(item.substr(dash + 1));
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

Cores read_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  Cores cores;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  // By the first hardware thread of the core, so that siblings meet.
  std::vector<std::pair<int, int>> order;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string siblings =
        first_line_of(concat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    order.emplace_back(siblings.empty() ? cpu : parse_cpu_list(siblings).front(), cpu);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [core, cpu] : order) cores.all.push_back(cpu);
  const std::string nodes = first_line_of("/sys/devices/system/node/online");
  for (const int node : nodes.empty() ? std::vector<int>{} : parse_cpu_list(nodes)) {
    const std::vector<int> on_node =
        parse_cpu_list(first_line_of(concat("/sys/devices/system/node/node", node, "/cpulist")));
    std::vector<int> usable;
    std::copy_if(cores.all.begin(), cores.all.end(), std::back_inserter(usable),
                 [&](int cpu) { return std::find(on_node.begin(), on_node.end(), cpu) != on_node.end(); });
    if (!usable.empty()) cores.by_node.push_back(std::move(usable));
  }
  if (cores.by_node.empty()) cores.by_node.push_back(cores.all);
  return cores;
}

std::vector<std::vector<int>> divide_cores(const Cores& cores, int ranks, Bind bind) {
  INTARSIA_CHECK(kUsage, ranks >= 1 && ranks <= 1024, "--ranks ", ranks, ": 1 to 1024 ranks of one host are allowed");
  std::vector<std::vector<int>> parts(static_cast<std::size_t>(ranks));
  const auto count = static_cast<std::size_t>(ranks);
  if (bind == Bind::kNone || count > cores.all.size()) return parts;
  for (std::size_t rank = 0; rank < count; ++rank) {
    if (bind == Bind::kNuma) {
      parts[rank] = cores.by_node[rank * cores.by_node.size() / count];
    } else {
      parts[rank].assign(cores.all.begin() + static_cast<std::ptrdiff_t>(rank * cores.all.size() / count),
                         cores.all.begin() + static_cast<std::ptrdiff_t>((rank + 1) * cores.all.size() / count));
    }
  }
  return parts;
}

}  // namespace intarsia::launch
