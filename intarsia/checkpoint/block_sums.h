// The checksums of a file's blocks, while its bytes go by. Internal to checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace intarsia::checkpoint {

class BlockSums {
 public:
  // The bytes that follow those of the calls before.
  void add(std::span<const std::byte> bytes);
  // CRC-32C of each kBlockBytes of all bytes so far; the last block may be shorter.
  std::vector<std::uint32_t> take();

 private:
  std::vector<std::uint32_t> blocks_;
  std::uint64_t in_block_ = 0;  // bytes of the last block
};

}  // namespace intarsia::checkpoint
