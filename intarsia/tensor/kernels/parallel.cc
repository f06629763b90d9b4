#include "intarsia/tensor/kernels/parallel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

namespace intarsia::tensor {

std::int64_t num_threads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

void for_each_task(std::int64_t tasks, const std::function<void(std::int64_t)>& use) {
  if (tasks <= 1 || num_threads() == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) use(task);
    return;
  }
  // The library's loops over tensors run on its threads: this is one over a tensor of which only addresses are used.
  const at::Tensor places = at::empty({tasks}, at::kByte);
  const auto* const first = places.const_data_ptr<std::uint8_t>();
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .check_all_same_dtype(false)
                                    .resize_outputs(false)
                                    .declare_static_shape(places.sizes())
                                    .add_output(places)
                                    .build();
  iterator.for_each(
      [&](char** data, const std::int64_t* strides, std::int64_t size0, std::int64_t size1) {
        for (std::int64_t i = 0; i < size0 * size1; ++i)
          use(reinterpret_cast<const std::uint8_t*>(data[0]) + (i % size0) * strides[0] + (i / size0) * strides[1] -
              first);
      },
      1);
}

void for_each_range(std::int64_t size, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& use) {
  const std::int64_t ranges = std::clamp<std::int64_t>(size / std::max<std::int64_t>(grain, 1), 1, num_threads());
  const std::int64_t range = (size + ranges - 1) / ranges;
  for_each_task(ranges, [&](std::int64_t task) {
    const std::int64_t begin = task * range, end = std::min(size, begin + range);
    if (begin < end) use(begin, end);
  });
}

}  // namespace intarsia::tensor
