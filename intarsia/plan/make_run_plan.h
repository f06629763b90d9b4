// From a configuration and a model to the frozen RunPlan.
#pragma once

#include "intarsia/config/train_config.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::plan {

// A model as named on the command line.
struct ModelSource {
  formats::HfConfig config;
  std::string directory;  // where config.json and tokenizer are; empty for a preset
  std::string weights;    // a peer's checkpoint or a file that has the weights; empty: they are in `directory`
  std::string name;       // last part of the path, or the preset's name
};

// A Hugging Face directory; a peer's checkpoint or a file of weights, whose config.json may lie up to two folders
// above; else a preset of that name. Errors: kUsage for none, with the presets' names; those of read_hf_config.
ModelSource find_model(const std::string& model);

// The ModelSpec of a config.json. Errors: kUnsupported for an unknown family.
ModelSpec model_spec(const formats::HfConfig& config);

// Tokens of a sample: what is asked, else the smaller of 2048 and the model's maximum.
// Errors: kConfig when more is asked than the model's maximum.
std::int64_t sequence_length(std::int64_t asked, const formats::HfConfig& config);

// The plan of a training run. `steps`: optimizer updates, after epochs were turned into updates; `seq_len`: that of the
// data. Errors: kConfig for what cannot be (sequence longer than the model's maximum, ...).
RunPlan make_run_plan(const config::TrainConfig& config, const formats::HfConfig& model, std::int64_t seq_len,
                      std::int64_t steps);

// The same for any model. `seq_len`: targets that a sample can have at most.
RunPlan make_run_plan(const config::TrainConfig& config, ModelSpec model, std::int64_t seq_len, std::int64_t steps);

// The plan of a pass without training (eval, generate): nothing is trainable, so that weights are all that is held;
// they are sharded when there are several ranks.
RunPlan make_inference_plan(const formats::HfConfig& model, int ranks, DType compute_dtype);

// Gradient buffers that reproducible mode holds beside the sum: levels of the tree over a rank's micro-steps.
std::int64_t tree_levels(const RunPlan& plan);

// Bytes that each rank holds for parameters, masters, gradients and optimizer state; activations apart.
std::int64_t state_bytes(const RunPlan& plan);

}  // namespace intarsia::plan
