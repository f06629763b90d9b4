// Byte-pair merging of one word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace intarsia::formats {

// Two neighbouring tokens and what they become.
struct BpeMerge {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

// An ordered list of merges: the earlier, the stronger.
// Threads: const members may be called at once. Memory: about 32 bytes a merge.
// Source: Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016, section 3.2.
class BpeMerges {
 public:
  BpeMerges() = default;
  // Ids are not negative. A pair that comes twice is refused: kFormat.
  explicit BpeMerges(const std::vector<BpeMerge>& merges);

  // Applies to `tokens`, in place, always the strongest merge that fits, leftmost first, until none fits.
  // Time: quadratic for short words, n log n for long ones.
  void apply(std::vector<std::int32_t>& tokens) const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Slot {
    std::uint64_t pair;
    std::uint32_t rank;  // kNone: the slot is free
    std::int32_t result;
  };
  static constexpr Slot kFree{0, kNone, 0};

  const Slot& find(std::int32_t left, std::int32_t right) const;
  void apply_to_short(std::vector<std::int32_t>& tokens) const;
  void apply_to_long(std::vector<std::int32_t>& tokens) const;

  std::vector<Slot> slots_;  // open addressing; the size is a power of two
};

}  // namespace intarsia::formats
