// Reading of stored elements as fp32.
#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/float_cast.h"
#include "intarsia/formats/tensor_file.h"

namespace intarsia::formats {

void read_as_f32(const TensorFile& file, const TensorInfo& tensor, std::int64_t begin, std::int64_t end, float* out) {
  const auto where = [&] { return concat(printable(file.path()), ": tensor \"", printable(tensor.name), "\""); };
  INTARSIA_CHECK(kFormat, 0 <= begin && begin <= end && end <= tensor.numel(), where(), ": elements ", begin, " to ",
                 end, " were asked for, it has ", tensor.numel());
  file.check_unchanged();
  const std::byte* from = file.bytes(tensor).data() + static_cast<std::size_t>(begin) * dtype_size(tensor.dtype);
  INTARSIA_CHECK(kFormat, is_weight_dtype(tensor.dtype), where(), ": dtype ", safetensors_name(tensor.dtype),
                 " cannot be a weight; F32, BF16, F16 and F64 can");
  widen(from, tensor.dtype, end - begin, out);
}

}  // namespace intarsia::formats
