#include "mutate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace intarsia::fuzz {
namespace {

// Borders at which arithmetic goes wrong.
constexpr std::array<std::uint64_t, 18> kBorders = {0,
                                                    1,
                                                    2,
                                                    7,
                                                    8,
                                                    0x7f,
                                                    0xff,
                                                    0x100,
                                                    0x7fff,
                                                    0xffff,
                                                    0x7fffffff,
                                                    0xffffffff,
                                                    std::uint64_t{1} << 32,
                                                    std::uint64_t{1} << 61,
                                                    std::uint64_t{1} << 62,
                                                    (std::uint64_t{1} << 63) - 1,
                                                    std::uint64_t{1} << 63,
                                                    ~std::uint64_t{0}};
constexpr std::array<const char*, 12> kNumbers = {
    "0",   "-1",  "1",    "2",     "4294967296",           "9223372036854775807",
    "1e3", "0.5", "-0.0", "1e400", "18446744073709551615", "999999999999999999999999"};

class Change {
 public:
  Change(std::string& bytes, Random& random) : bytes_(bytes), random_(random) {}

  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void apply(const std::vector<std::string>& seeds, const std::vector<std::string>& words) {
    const std::size_t at = below(bytes_.size() + 1);
    switch (below(10)) {
      case 0:
        if (at < bytes_.size()) bytes_[at] = static_cast<char>(bytes_[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < bytes_.size()) bytes_[at] = static_cast<char>(random_());
        return;
      case 2: {  // a little-endian number
        const std::size_t width = std::size_t{1} << below(4);
        if (width > bytes_.size()) return;
        std::uint64_t value = kBorders[below(kBorders.size())];
        if (below(3) == 0) value = bytes_.size() + below(17) - 8;
        std::memcpy(bytes_.data() + below(bytes_.size() - width + 1), &value, width);
        return;
      }
      case 3:
        number();
        return;
      case 4:
        bytes_.erase(at, 1 + below(below(4) == 0 ? bytes_.size() : 8));
        return;
      case 5: {
        const std::string part = bytes_.substr(at, 1 + below(32));
        bytes_.insert(below(bytes_.size() + 1), part);
        return;
      }
      case 6: {
        const std::string& other = seeds[below(seeds.size())];
        const std::size_t from = below(other.size());
        const std::string part = other.substr(from, 1 + below(64));
        if (below(2) == 0) {
          bytes_.insert(at, part);
        } else {
          bytes_.replace(at, std::min(part.size(), bytes_.size() - at), part);
        }
        return;
      }
      case 7:
        if (!words.empty()) bytes_.insert(at, words[below(words.size())]);
        return;
      case 8:
        if (!words.empty()) {
          const std::string& word = words[below(words.size())];
          bytes_.replace(at, std::min(word.size(), bytes_.size() - at), word);
        }
        return;
      default:
        if (below(4) == 0)
          bytes_.resize(at);
        else
          bytes_.insert(at, std::string(1 + below(4), static_cast<char>(random_())));
    }
  }

 private:
  // A decimal number in a text becomes another.
  void number() {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(below(bytes_.size() + 1));
    const auto begin = std::find_if(from, bytes_.end(), digit);
    if (begin == bytes_.end()) return;
    const auto end = std::find_if_not(begin, bytes_.end(), digit);
    const std::size_t place = static_cast<std::size_t>(begin - bytes_.begin());
    bytes_.replace(place, static_cast<std::size_t>(end - begin), kNumbers[below(kNumbers.size())]);
  }

  std::string& bytes_;
  Random& random_;
};

}  // namespace

std::string mutated(const std::vector<std::string>& seeds, const std::vector<std::string>& words,
                    std::size_t most_bytes, Random& random) {
  std::string bytes = seeds[random() % seeds.size()];
  Change change(bytes, random);
  for (std::size_t left = 1 + random() % 5; left > 0; --left) change.apply(seeds, words);
  if (bytes.size() > most_bytes) bytes.resize(most_bytes);
  return bytes;
}

}  // namespace intarsia::fuzz
