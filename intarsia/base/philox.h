// Counter-based random numbers: the value depends on (key, counter) only, so any rank can draw any element.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox4x32-10).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace intarsia {

// 4 x 32 random bits of Philox4x32-10.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high = 0);

// A 64-bit key from a seed and what the numbers are for ("init:model.norm.weight", "shuffle").
std::uint64_t philox_key(std::uint64_t seed, std::string_view purpose);

// Element `index` of the stream of `key`: uniform in [0, 1), with 24 bits.
float philox_uniform(std::uint64_t key, std::uint64_t index);

// Elements 2 * pair and 2 * pair + 1 of the stream of `key`, as philox_normal gives them, in one draw.
std::array<float, 2> philox_normal_pair(std::uint64_t key, std::uint64_t pair);

// Element `index` of the stream of `key`: standard normal (Box-Muller; elements 2k and 2k+1 share one draw).
float philox_normal(std::uint64_t key, std::uint64_t index);

}  // namespace intarsia
