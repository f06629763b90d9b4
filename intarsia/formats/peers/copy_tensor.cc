#include "intarsia/formats/peers/copy_tensor.h"

#include <algorithm>

#include "intarsia/formats/float_cast.h"

namespace intarsia::formats {

void TensorCopier::copy(const LogicalTensor& tensor, DType dtype,
                        const std::function<void(std::span<const std::byte>)>& use) {
  constexpr std::int64_t kChunk = 1 << 19;  // elements
  for (std::int64_t begin = 0; begin < tensor.numel(); begin += kChunk) {
    const std::int64_t end = std::min(begin + kChunk, tensor.numel());
    values_.resize(static_cast<std::size_t>(end - begin));
    checkpoint_.read(tensor, begin, end, values_.data());
    const auto bytes = narrow(values_, dtype, halves_);
    use(bytes);
    done_ += static_cast<std::int64_t>(bytes.size());
    if (progress_) progress_(done_, total_);
  }
}

}  // namespace intarsia::formats
