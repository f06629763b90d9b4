#include "intarsia/data/batch.h"

#include <ATen/ops/empty.h>

#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/formats/tokenizer.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::data {

Batch make_batch(const Dataset& dataset, std::span<const std::int64_t> indices) {
  const tensor::MemoryScope scope(tensor::MemoryCategory::kData);
  const std::int64_t rows = static_cast<std::int64_t>(indices.size()), columns = dataset.seq_len();
  Batch batch{at::empty({rows, columns}, at::kLong), at::empty({rows, columns}, at::kLong), {}, 0, {}};
  if (dataset.is_isolated()) batch.positions = at::empty({rows, columns}, at::kLong);
  auto* ids = batch.input_ids.data_ptr<std::int64_t>();
  auto* labels = batch.labels.data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < indices.size(); ++row) {
    dataset.fill(indices[row], ids, labels);
    if (dataset.is_isolated()) {
      dataset.positions(indices[row],
                        batch.positions.data_ptr<std::int64_t>() + static_cast<std::int64_t>(row) * columns);
    }
    for (std::int64_t i = 1; i < columns; ++i) batch.num_targets += labels[i] != kNotCounted ? 1 : 0;
    ids += columns;
    labels += columns;
  }
  return batch;
}

Batch make_batch(const Dataset& dataset, const Sampler& sampler, const Window& window, int rank,
                 std::int64_t micro_step) {
  Batch batch = make_batch(dataset, sampler.samples_of(window, rank, micro_step));
  batch.places = sampler.positions_of(window, rank, micro_step);
  return batch;
}

std::int64_t target_bytes(const at::Tensor& labels, const formats::Tokenizer& tokenizer) {
  INTARSIA_INVARIANT(labels.dim() == 2 && labels.scalar_type() == at::kLong && labels.is_cpu(),
                     "labels must be [B, S] int64 on the CPU");
  const at::Tensor rows = labels.contiguous();
  const auto* values = rows.const_data_ptr<std::int64_t>();
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    if (i % rows.size(1) != 0 && values[i] != kNotCounted) targets.push_back(static_cast<std::int32_t>(values[i]));
  }
  return tokenizer.text_bytes(targets);
}

}  // namespace intarsia::data
