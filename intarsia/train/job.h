// A training run, checked and planned, before any rank exists. Ranks inherit or rebuild it; nothing in it changes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/data/dataset.h"
#include "intarsia/data/sampler.h"
#include "intarsia/formats/chat_format.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/tokenizer.h"
#include "intarsia/plan/lora.h"
#include "intarsia/plan/run_plan.h"
#include "intarsia/train/monitors.h"

namespace intarsia::train {

// When the loop does what. Intervals count optimizer steps; 0: never (only at the end where that makes sense).
struct LoopOptions {
  std::int64_t log_every = 10;
  std::int64_t eval_every = 0;
  std::int64_t save_every = 0;
  std::int64_t keep = 2;
  std::int64_t keep_every = 0;
  bool background_save = false;              // checkpoints during the run are written while it goes on
  bool skip_when_saving = false;             // one that is due while one is being written is left out; else it waits
  std::string resume = "auto";               // auto, never, or a checkpoint's path
  bool fresh = false;                        // refuse a folder that holds checkpoints
  bool overwrite = false;                    // remove them first
  bool leave_reproducible = false;           // go on with a reproducible run without being so
  std::vector<std::string> changes_allowed;  // keys of the configuration that may differ from a checkpoint's
  std::string dump_gradients;
  std::int64_t dump_step = 1;
  std::int64_t max_bad_steps = 3;
  std::int64_t early_stopping = 0;  // evaluations in a row without a lower loss; 0: never
  bool save_best = false;           // export RUN/best whenever an evaluation is the best so far
  bool profile_recompute = false;   // say at the end what recomputation took
};

struct SamplePrompt {
  std::string text;
  std::vector<std::int64_t> ids;
};

// Texts to write while training.
struct SampleOptions {
  std::vector<SamplePrompt> prompts;  // empty: none
  std::int64_t every = 0;             // steps; 0: at the end only
  std::int64_t tokens = 48;           // of a text at the most
};

// What is told of where time goes (train/profile.h), by rank 0.
struct ProfileOptions {
  bool wall_clock = false;             // phases of the step beside each line of the console
  std::int64_t flops_step = 0;         // a table of this step; 0: none
  std::size_t flops_units = 0;         // units in it, the slowest first; 0: all
  std::string flops_file;              // instead of the console
  bool comms = false;                  // collectives, at the end
  bool comms_verbose = false;          // and each one as it happens
  std::vector<std::string> comms_ops;  // which count; empty: all
  bool any() const { return wall_clock || flops_step > 0 || comms; }
};

struct TrainJob {
  plan::RunPlan plan;
  plan::LoraPlan lora;  // of the adapters in plan.model, if there are any
  formats::HfConfig model;
  std::int64_t vocab_in_files = 0;  // rows that the weights' embedding has; 0: model.vocab_size, which is the run's
  std::string model_directory;      // empty: a preset
  std::string weights;  // a peer's checkpoint or a file with the weights; empty: they are in model_directory
  bool random_weights = false;
  std::optional<formats::Tokenizer> tokenizer;
  std::optional<formats::ChatFormat> chat;
  std::shared_ptr<const data::Dataset> dataset;
  std::shared_ptr<const data::Dataset> eval_dataset;  // null: no evaluation
  data::SamplerOptions sampler;
  LoopOptions loop;
  SampleOptions samples;
  MonitorOptions monitors;
  ProfileOptions profile;
  std::string out;          // RUN; chosen by rank 0 when empty
  std::string run_name;     // for the default RUN
  std::string config_json;  // the resolved configuration
  std::vector<std::string> notes;
  std::int64_t predicted_peak = 0;  // bytes of a rank until the last step, as the meter counts; 0: not predicted
  std::string memory_text;          // what plan predicts and what this host allows, for the banner
};

}  // namespace intarsia::train
