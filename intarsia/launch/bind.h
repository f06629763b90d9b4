// Which cores each rank of a host runs on.
#pragma once

#include <string>
#include <vector>

namespace intarsia::launch {

enum class Bind { kCores, kNuma, kNone };

// "cores", "numa", "none". Errors: kUsage with the word.
Bind parse_bind(const std::string& word);

// What the system says of its cores, as far as this process may use them.
struct Cores {
  // Usable cores; hardware threads of one core stand next to each other.
  std::vector<int> all;
  // The same cores by memory node.
  std::vector<std::vector<int>> by_node;
};
Cores read_cores();

// The cores of each of `ranks` ranks; an empty list: not bound. kCores divides them evenly, kNuma gives a rank its
// whole node. With more ranks than cores nobody is bound: a rank that waits must not hold up another one's core.
// Errors: kUsage for ranks below 1 or above 1024.
std::vector<std::vector<int>> divide_cores(const Cores& cores, int ranks, Bind bind);

// Numbers of a kernel list such as "0-3,8". Errors: kInternal.
std::vector<int> parse_cpu_list(const std::string& list);

}  // namespace intarsia::launch
