// Builds a run, stage by stage, in order: configuration -> job -> weights, engine, model, optimizer.
#pragma once

#include <memory>

#include "intarsia/comm/data_axes.h"
#include "intarsia/config/resolve.h"
#include "intarsia/models/model.h"
#include "intarsia/optim/loss_scale.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/shard/engine.h"
#include "intarsia/train/job.h"

namespace intarsia::train {

// Reads the model's config, opens (and where needed tokenizes) the data, turns epochs into steps and plans. Takes no
// memory of the model's size. `out`: RUN, or empty when it is not known yet.
// Errors: everything that is wrong with configuration, model or data.
TrainJob assemble_job(const config::Resolved& resolved, const plan::ModelSource& model, const std::string& out);

// What a rank trains with. Declared in the order in which each stage is built from the earlier ones.
struct Assembly {
  std::unique_ptr<shard::Engine> engine;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::LossScale> loss_scale;
};

// Collective over `axes`. `job` and the communicators must outlive the assembly. Errors: those of reading weights;
// kMemory.
Assembly assemble(const TrainJob& job, const comm::DataAxes& axes);

// The tokenizer beside the model's files, if there is one. Errors: kConfig when it has more tokens than the embedding
// has rows; those of Tokenizer::load.
std::optional<formats::Tokenizer> find_tokenizer(const plan::ModelSource& model);

// Initial weights of a model: its files, or the seed where it has none; of adapters the seed always. The files have the
// vocabulary of model.config, the plan's model may have another (plan/resized_vocab.h). Errors: kIo, kFormat with file
// and tensor.
std::unique_ptr<plan::WeightSource> open_weights(const plan::ModelSource& model, const plan::RunPlan& plan);

}  // namespace intarsia::train
