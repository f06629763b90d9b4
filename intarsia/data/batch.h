// The tensors of one micro-step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "intarsia/data/dataset.h"
#include "intarsia/data/sampler.h"

namespace intarsia::data {

// Shapes: input_ids, labels, positions [B, S] int64, on the CPU. B may be 0: a rank without samples in this micro-step.
struct Batch {
  at::Tensor input_ids;
  at::Tensor labels;                   // kNotCounted or a token id; the target of position t is labels[:, t + 1]
  at::Tensor positions;                // undefined, or of an isolated data set: where one is 0 a document begins
  std::int64_t num_targets = 0;        // labels that count, column 0 left out
  std::vector<std::int64_t> places{};  // of each row in the run's order of data (Sampler); empty: not of a run
};

// The samples with these indices, one a row, in their order. Memory: 16 bytes a token (24 with
// positions), category kData.
// Errors: Dataset::fill's.
Batch make_batch(const Dataset& dataset, std::span<const std::int64_t> indices);

// The samples of (rank, micro_step) in a window, with their places.
Batch make_batch(const Dataset& dataset, const Sampler& sampler, const Window& window, int rank,
                 std::int64_t micro_step);

// Bytes of text that the counted targets of `labels` [B, S] int64 stand for: those of column 0 are left out as
// make_batch's num_targets leaves them out, and special tokens (begin or end of text) stand for none. The sum of the
// losses in nats divided by (bytes * ln 2) is bits per byte.
std::int64_t target_bytes(const at::Tensor& labels, const formats::Tokenizer& tokenizer);

}  // namespace intarsia::data
