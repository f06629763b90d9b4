#include "intarsia/formats/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "intarsia/base/error.h"

namespace intarsia::formats {
namespace {

constexpr std::size_t kShortWord = 64;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

// The finalizer of SplitMix64: neighbouring ids must not fall into neighbouring slots.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

BpeMerges::BpeMerges(const std::vector<BpeMerge>& merges) {
  if (merges.empty()) return;
  slots_.assign(std::bit_ceil(merges.size() * 2), kFree);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    std::size_t at = mix(key) & (slots_.size() - 1);
    while (slots_[at].rank != kNone) {
      INTARSIA_CHECK(kFormat, slots_[at].pair != key, "merge ", rank, " repeats merge ", slots_[at].rank);
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {key, static_cast<std::uint32_t>(rank), merges[rank].result};
  }
}

const BpeMerges::Slot& BpeMerges::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t at = mix(key) & (slots_.size() - 1);
  while (slots_[at].rank != kNone && slots_[at].pair != key) at = (at + 1) & (slots_.size() - 1);
  return slots_[at];
}

void BpeMerges::apply(std::vector<std::int32_t>& tokens) const {
  if (slots_.empty() || tokens.size() < 2) return;
  if (tokens.size() <= kShortWord) {
    apply_to_short(tokens);
  } else {
    apply_to_long(tokens);
  }
}

void BpeMerges::apply_to_short(std::vector<std::int32_t>& tokens) const {
  const Slot* pairs[kShortWord];  // pairs[i]: the slot of (tokens[i], tokens[i + 1])
  std::size_t count = tokens.size();
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = &find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i]->rank < pairs[best]->rank) best = i;
    }
    if (pairs[best]->rank == kNone) break;
    tokens[best] = pairs[best]->result;
    for (std::size_t i = best + 1; i + 1 < count; ++i) tokens[i] = tokens[i + 1];
    for (std::size_t i = best + 1; i + 2 < count; ++i) pairs[i] = pairs[i + 1];
    --count;
    if (best > 0) pairs[best - 1] = &find(tokens[best - 1], tokens[best]);
    if (best + 1 < count) pairs[best] = &find(tokens[best], tokens[best + 1]);
  }
  tokens.resize(count);
}

void BpeMerges::apply_to_long(std::vector<std::int32_t>& tokens) const {
  constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  INTARSIA_CHECK(kData, tokens.size() < kEnd, "a word of ", tokens.size(), " bytes; split the document");
  const auto count = static_cast<std::uint32_t>(tokens.size());
  std::vector<std::uint32_t> next(count), previous(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 == count ? kEnd : i + 1;
    previous[i] = i == 0 ? kEnd : i - 1;
  }
  struct Candidate {
    std::uint32_t rank, at;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::uint32_t at) {
    if (at == kEnd || next[at] == kEnd) return;
    const Slot& slot = find(tokens[at], tokens[next[at]]);
    if (slot.rank != kNone) queue.push({slot.rank, at});
  };
  for (std::uint32_t i = 0; i < count; ++i) offer(i);
  constexpr std::int32_t kGone = -1;
  while (!queue.empty()) {
    const Candidate candidate = queue.top();
    queue.pop();
    const std::uint32_t at = candidate.at;
    if (tokens[at] == kGone || next[at] == kEnd) continue;
    const Slot& slot = find(tokens[at], tokens[next[at]]);
    if (slot.rank != candidate.rank) continue;  // an earlier merge changed this pair
    const std::uint32_t right = next[at];
    tokens[at] = slot.result;
    tokens[right] = kGone;
    next[at] = next[right];
    if (next[at] != kEnd) previous[next[at]] = at;
    offer(previous[at]);
    offer(at);
  }
  std::erase(tokens, kGone);
}

}  // namespace intarsia::formats
