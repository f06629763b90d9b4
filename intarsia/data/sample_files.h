// Ready samples in safetensors files. Internal to data; open_dataset() makes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/data/dataset.h"

namespace intarsia::data {

// `input_ids` [N, S] and optional `labels` [N, S], int32 or int64, of one or more files with one S. The tensors stay in
// the mapped files. A label is an id or kNotCounted. Errors: kFormat for other shapes and dtypes, with the shape; kData
// for no samples at all, and for ids outside [0, vocab_size) (0: unchecked): at once in files of up to 2^24 tokens, in
// larger ones when fill() meets them.
std::unique_ptr<Dataset> open_sample_files(const std::vector<std::string>& paths, std::int64_t vocab_size);

}  // namespace intarsia::data
