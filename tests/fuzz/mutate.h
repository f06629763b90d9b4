// Changed inputs, the same for the same seed on every machine.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace intarsia::fuzz {

using Random = std::mt19937_64;

// One of `seeds` after one to five changes: bits, bytes, numbers in binary and in text, parts cut out, doubled, moved
// in from another seed, words of `words` put in. At most `most_bytes` long.
std::string mutated(const std::vector<std::string>& seeds, const std::vector<std::string>& words,
                    std::size_t most_bytes, Random& random);

}  // namespace intarsia::fuzz
