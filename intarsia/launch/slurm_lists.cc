// Slurm's compressed lists of hosts and of tasks.
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/launch/environment.h"

namespace intarsia::launch {
namespace {

constexpr std::size_t kMostHosts = 65536;

[[noreturn]] void bad(const char* what, std::string_view list) {
  fail(ErrorKind::kUsage, "Slurm's ", what, " '", printable(list), "' cannot be read");
}

long number(std::string_view text, const char* what, std::string_view list) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text.front() == '-' || error != std::errc() || end != text.data() + text.size()) bad(what, list);
  return value;
}

// Splits at commas outside of brackets.
std::vector<std::string_view> split(std::string_view list, const char* what) {
  std::vector<std::string_view> items;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      if (i == begin) bad(what, list);
      items.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    } else if (list[i] == '[') {
      ++depth;
    } else if (list[i] == ']') {
      --depth;
    }
    if (depth < 0 || depth > 1) bad(what, list);
  }
  if (depth != 0) bad(what, list);
  return items;
}

// "n[08-10]x[1,2]": every name, keeping zeros in front.
std::vector<std::string> expand_item(std::string_view item, std::string_view list) {
  const std::size_t open = item.find('[');
  if (open == std::string_view::npos) return {std::string(item)};
  const std::size_t close = item.find(']', open);
  const std::vector<std::string> tails =
      close + 1 < item.size() ? expand_item(item.substr(close + 1), list) : std::vector<std::string>{""};
  std::vector<std::string> names;
  for (const std::string_view range : split(item.substr(open + 1, close - open - 1), "host list")) {
    const std::size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
    const long from = number(first, "host list", list);
    const long to = number(last, "host list", list);
    if (to < from || static_cast<std::size_t>(to - from) >= kMostHosts) bad("host list", list);
    for (long value = from; value <= to; ++value) {
      std::string digits = std::to_string(value);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      for (const std::string& tail : tails) names.push_back(concat(item.substr(0, open), digits, tail));
      if (names.size() > kMostHosts) bad("host list", list);
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_slurm_hosts(const std::string& list) {
  std::vector<std::string> hosts;
  for (const std::string_view item : split(list, "host list")) {
    for (std::string& name : expand_item(item, list)) hosts.push_back(std::move(name));
    if (hosts.size() > kMostHosts) bad("host list", list);
  }
  return hosts;
}

std::vector<int> expand_slurm_tasks(const std::string& list) {
  std::vector<int> tasks;
  for (const std::string_view item : split(list, "task list")) {
    const std::size_t times = item.find("(x");
    const long count = number(item.substr(0, times), "task list", list);
    long repeats = 1;
    if (times != std::string_view::npos) {
      if (item.back() != ')') bad("task list", list);
      repeats = number(item.substr(times + 2, item.size() - times - 3), "task list", list);
    }
    if (count > 65536 || repeats < 1 || tasks.size() + static_cast<std::size_t>(repeats) > kMostHosts) {
      bad("task list", list);
    }
    tasks.insert(tasks.end(), static_cast<std::size_t>(repeats), static_cast<int>(count));
  }
  return tasks;
}

}  // namespace intarsia::launch
