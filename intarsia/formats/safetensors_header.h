// The JSON header of a safetensors file, checked against the size of the file. Internal to formats.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/formats/safetensors.h"

namespace intarsia::formats {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensors = 1'000'000;
inline constexpr std::size_t kMaxNameBytes = 1024;
inline constexpr std::size_t kMaxDims = 8;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// Parses the header's text and checks it against the number of data bytes behind it. `path` is for messages.
// Errors: kFormat.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text, std::uint64_t data_bytes);

}  // namespace intarsia::formats
