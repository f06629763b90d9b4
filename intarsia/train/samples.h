// Texts that the model writes while it is trained.
#pragma once

#include <vector>

#include "intarsia/models/model.h"
#include "intarsia/shard/engine.h"
#include "intarsia/train/job.h"
#include "intarsia/train/run_history.h"

namespace intarsia::train {

// Turns a run's prompts into tokens, before any rank exists.
// Errors: kConfig for a model without tokenizer (or, with `chat`, without chat template) and for prompts that leave no
// room in a sample of `seq_len` tokens; kData for a prompt that is not UTF-8; those of the template.
std::vector<SamplePrompt> encode_prompts(const std::vector<std::string>& prompts, bool chat, const TrainJob& job,
                                         std::int64_t seq_len);

// Continues each of job.samples' prompts, drawing from the most likely tokens with the same random numbers every time,
// so that texts of different steps can be compared. Weights, optimizer, data order and every other random number stay
// as they are. All ranks get the same texts.
// Collective over the engine's axis. Time: a forward pass of the text so far for each token. Memory: at the most that
// of a micro-batch of one sample, without gradients.
std::vector<Sample> write_samples(shard::Engine& engine, models::Model& model, const TrainJob& job, std::int64_t step);

}  // namespace intarsia::train
