// The ModelSpec of GPT-2, from its config.json.
#pragma once

#include "intarsia/formats/hf_config.h"
#include "intarsia/plan/model_spec.h"

namespace intarsia::plan {

// Parameters have Hugging Face's names, behind the config's tensor_prefix, and shapes: the weights of the projections,
// which are Conv1D there, are [in, out]. Units, in forward order: "wte", which has the learned positions too; "h.i";
// "head" (with the prefix, all of them). Tied, the embedding has two uses and the name lm_head.weight beside its own.
// Matrices start normal with initializer_range, those before a residual sum with initializer_range / sqrt(2 layers);
// biases as zeros, norms as ones.
ModelSpec gpt2_spec(const formats::HfConfig& config);

}  // namespace intarsia::plan
