// Every tensor of a model is accounted for, before any weight is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intarsia/formats/model_directory.h"

namespace intarsia::formats {

// A tensor that a model needs. A tied one may be stored under any of its names.
struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::string> tied_names;
};

// Finds each expected tensor, in the order given, under its name or the first of its tied names that is there.
// Buffers that transformers computes itself ("*.rotary_emb.inv_freq", GPT-2's masks "*.attn.bias" of four dims and
// "*.attn.masked_bias") may be there and are ignored. A tensor stored
// under two tied names is accepted when both have the same dtype and bytes.
// Errors: kFormat, one for all: each missing, extra or mis-shaped tensor with its name and both shapes, a dtype that is
// not a float, tied copies that differ.
std::vector<LocatedTensor> account_tensors(const ModelDirectory& model, const std::vector<ExpectedTensor>& expected);

// Whether transformers computes this tensor itself, so that a file may have it and nobody needs it.
bool is_computed_buffer(const std::string& name, std::size_t num_dims);

}  // namespace intarsia::formats
