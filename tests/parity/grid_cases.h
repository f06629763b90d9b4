// The cells of the parity grid: all of them, and a part in which each pair of values of two axes occurs.
#pragma once

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "grid_case.h"

namespace intarsia::parity {

inline std::vector<GridCase> all_cases() {
  std::vector<GridCase> cases;
  for (int placement = 0; placement < static_cast<int>(grid_placements().size()); ++placement)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const std::int64_t logical : {8, 32})  // one and four micro-steps on 8 ranks
        for (const plan::Recompute recompute :
             {plan::Recompute::kNone, plan::Recompute::kFull, plan::Recompute::kSelective})
          for (const int ranks : {1, 2, 4, 8})
            for (const Gathering gathering : {Gathering::kMapped, Gathering::kCopied, Gathering::kAhead}) {
              const GridCase cell{placement, dtype, logical, recompute, ranks, gathering};
              if (cell.exists()) cases.push_back(cell);
            }
  return cases;
}

using GridPairs = std::set<std::array<std::int64_t, 4>>;

inline GridPairs pairs_of(const GridCase& cell) {
  const std::array<std::int64_t, 6> values = {cell.placement, static_cast<std::int64_t>(cell.dtype),
                                              cell.logical,   static_cast<std::int64_t>(cell.recompute),
                                              cell.ranks,     static_cast<std::int64_t>(cell.gathering)};
  GridPairs pairs;
  for (std::int64_t a = 0; a < 6; ++a)
    for (std::int64_t b = a + 1; b < 6; ++b)
      pairs.insert({a, values[static_cast<std::size_t>(a)], b, values[static_cast<std::size_t>(b)]});
  return pairs;
}

// Greedy: always the cell with the most pairs that are still missing.
inline std::vector<GridCase> covering_cases() {
  const std::vector<GridCase> all = all_cases();
  GridPairs missing;
  for (const GridCase& cell : all) missing.merge(pairs_of(cell));
  std::vector<GridCase> chosen;
  while (!missing.empty()) {
    const auto gain = [&](const GridCase& cell) {
      return std::ranges::count_if(pairs_of(cell), [&](const auto& pair) { return missing.contains(pair); });
    };
    const GridCase best = *std::ranges::max_element(all, {}, gain);
    for (const auto& pair : pairs_of(best)) missing.erase(pair);
    chosen.push_back(best);
  }
  return chosen;
}

}  // namespace intarsia::parity
