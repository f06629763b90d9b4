#include "intarsia/checkpoint/block_sums.h"

#include <algorithm>
#include <utility>

#include "intarsia/base/crc32c.h"
#include "intarsia/checkpoint/manifest.h"

namespace intarsia::checkpoint {

void BlockSums::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (in_block_ == 0) blocks_.push_back(0);
    const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), kBlockBytes - in_block_));
    blocks_.back() = crc32c(part, blocks_.back());
    in_block_ = (in_block_ + part.size()) % kBlockBytes;
    bytes = bytes.subspan(part.size());
  }
}

std::vector<std::uint32_t> BlockSums::take() {
  in_block_ = 0;
  return std::exchange(blocks_, {});
}

}  // namespace intarsia::checkpoint
