// Everything that a run asks for, with its defaults, whatever file or flags it came from. Seen only by config, plan,
// train/assemble.cc and cli: plan turns it into a RunPlan, below which nobody asks a configuration question. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/base/device.h"
#include "intarsia/config/optimizer_config.h"

namespace intarsia::config {

enum class Precision { kFp32, kFp16, kBf16 };

// train_batch_size = micro_batch_size x accumulation x data-parallel ranks; always checked.
struct BatchConfig {
  std::int64_t train_batch_size = 1;  // samples per optimizer update, all ranks together
  std::int64_t micro_batch_size = 1;  // samples of one rank in one pass; larger: faster, activations grow with it
  std::int64_t accumulation = 1;  // passes per update; larger: bigger batch at the memory of one pass, slower updates
  // "auto" that nothing settles: plan/settle_open.h chooses micro_batch_size and, where train_batch_size was given,
  // accumulation; until then they hold the largest that can be.
  bool micro_is_open = false;
  bool total_is_given = false;  // with micro_is_open
};

// Loss scale of fp16. bf16 and fp32 have none.
struct LossScaleConfig {
  enum class Mode { kNone, kStatic, kDynamic };
  Mode mode = Mode::kNone;
  double value = 0;                     // of kStatic
  double initial = 65536;               // first scale of kDynamic (2^16)
  std::int64_t window = 1000;           // updates without overflow before the scale doubles; larger: slower growth
  std::int64_t hysteresis = 2;          // overflows in a row before the scale halves; larger: slower fall
  bool consecutive_hysteresis = false;  // an update without overflow restores the hysteresis
  double min = 1;                       // the scale never falls below
};

// Where optimizer state or parameters rest outside the device. Parsed and shown; `train` refuses it by name.
struct OffloadConfig {
  std::string device = "none";  // none, cpu, nvme
  std::string nvme_path{};      // absolute; only with nvme
  bool pin_memory = true;
  std::int64_t buffer_count = 4;
  bool pipeline_read = false, pipeline_write = false, fast_init = false;  // optimizer
  double ratio = 1.0;                                                     // optimizer: share that is offloaded
  std::int64_t buffer_size = 100'000'000;                                 // param: elements
  std::int64_t max_in_cpu = 1'000'000'000;                                // param: elements
};

// Values of the zero_optimization section. Sizes count elements. `stage` and the sizes of groups decide what rests
// where; the others tune DeepSpeed's own mechanism and have no effect here (docs/config.md says why, key by key).
struct ZeroConfig {
  int stage =
      0;  // 0 nothing sharded, 1 optimizer state, 2 and gradients, 3 and parameters; larger: less memory, more traffic
  bool stage_is_open = false;  // intarsia.stage "auto": plan/settle_open.h chooses it
  bool overlap_comm = false;   // default true in stage 3
  bool overlap_is_default = true;
  bool contiguous_gradients = true, reduce_scatter = true, allgather_partitions = true;
  bool round_robin_gradients = false, load_from_fp32_weights = true;
  std::int64_t reduce_bucket_size = 500'000'000, allgather_bucket_size = 500'000'000;
  std::int64_t sub_group_size = 1'000'000'000, prefetch_bucket_size = 50'000'000;
  std::int64_t param_persistence_threshold = 100'000;
  std::int64_t max_live_parameters = 1'000'000'000, max_reuse_distance = 1'000'000'000;
  std::int64_t hpz_partition_size = 1;  // ranks that share a second copy of the parameters; 1: none
  std::int64_t mics_shard_size = -1;    // ranks of a shard group; -1: all
  bool quantized_weights = false, quantized_gradients = false, quantized_nontrainable_weights = false;
};

struct CommunicationConfig {
  std::string communication_data_type;  // "", "fp32", "fp16", "bf16": type in which ranks add gradients; empty: fp32
  std::string grad_accum_dtype;         // same words; only fp32 is built
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
};

// The activation_checkpointing section. Present: blocks are recomputed in the backward pass (RunConfig::recompute), in
// as many pieces as number_checkpoints says; without it each block is one.
struct ActivationCheckpointing {
  bool section_present = false;
  bool partition_activations = false, contiguous_memory_optimization = false, cpu_checkpointing = false;
  bool synchronize_checkpoint_boundary = false, profile = false;
  std::optional<std::int64_t> number_checkpoints;
};

struct AioConfig {
  std::int64_t block_size = 1 << 20;  // bytes
  std::int64_t queue_depth = 8, intra_op_parallelism = 1;
  bool single_submit = false, overlap_events = true, use_gds = false;
};

// none: fast, keeps all activations; full: one more forward, keeps block inputs; selective: keeps results of matrix
// products; every-K: full for one block in K.
enum class Recompute { kNone, kFull, kSelective, kEveryK };
enum class Pack {
  kOff,
  kConcat,
  kIsolate
};  // off: one document a sample; concat: one after another; isolate: no attention across
enum class TooLong { kError, kTruncate, kDrop };  // documents longer than seq_len with pack off or isolate
enum class TrainOn { kAssistant, kAll };          // of chats and of prompts with completions
enum class BadLines { kError, kSkip };            // JSONL lines that are no document
enum class Bind { kNone, kCores, kNuma };
enum class Backend { kThreads, kShm, kGloo };
// off: training stops until a checkpoint is written; else only until its state is copied, which takes the memory of one
// copy, and a save that is due while one is being written waits for it or is skipped.
enum class AsyncSave { kOff, kWait, kSkip };
enum class LastWindow { kCarry, kFlush, kDrop };  // micro-batches left at an epoch's end

// The run's own settings: the "intarsia" section and the flags. docs/config.md has the same table.
struct RunConfig {
  std::string model;              // Hugging Face directory or preset
  std::vector<std::string> data;  // files, globs, FILE:WEIGHT
  std::string out;                // empty: runs/MODEL-N
  std::int64_t ranks = 1;         // data-parallel ranks
  std::int64_t steps = 0;         // optimizer updates; 0: as many as `epochs` give
  double epochs = 1;              // passes over the data
  std::int64_t seq_len = 0;       // tokens; 0: the smaller of 2048 and the model's maximum; activations grow with it
  Recompute recompute = Recompute::kNone;
  std::int64_t recompute_every = 1;  // K of kEveryK; larger: faster, more memory
  std::uint64_t seed = 42;
  bool init_random = false;  // fill the model from the seed instead of its files
  // Rows of embedding and head. absent: those of the model's files; 0: one for each token of the tokenizer.
  std::optional<std::int64_t> resize_vocab;
  std::int64_t resize_vocab_multiple = 1;  // with resize_vocab: rounded up to a multiple of it
  std::vector<std::string> eval_data;
  double eval_fraction = 0;                      // of the training samples, held out; 0: none
  std::int64_t eval_every = 0;                   // updates; 0: only at the end
  std::int64_t save_every = 0;                   // updates; 0: only at the end; smaller: less is lost, more is written
  std::int64_t keep = 2;                         // checkpoints kept; 0: all
  std::int64_t keep_every = 0;                   // besides, those of steps that are multiples of it; 0: none
  AsyncSave async_save = AsyncSave::kOff;        // training goes on while a checkpoint is written
  std::string resume = "auto";                   // auto, never, or the path of a checkpoint
  std::vector<std::string> resume_with_changes;  // keys that may differ from the run that is resumed
  bool fresh = false;                            // refuse an `out` that holds checkpoints
  bool overwrite = false;                        // remove an earlier run's checkpoints in `out` first
  std::int64_t log_every = 10;                   // updates between console lines (metrics.jsonl has every update)
  bool shuffle = true;
  Pack pack = Pack::kConcat;
  TooLong too_long = TooLong::kError;
  TrainOn train_on = TrainOn::kAssistant;
  BadLines bad_lines = BadLines::kError;
  int threads = 0;  // intra-op threads of a rank; 0: the cores divided among the local ranks
  Bind bind = Bind::kNone;
  bool reproducible = false;               // the same bits in any layout; costs log2(L/ranks) more gradient buffers
  bool not_reproducible = false;           // go on with a reproducible run without being so from here on
  std::int64_t logical_micro_batches = 0;  // L, with reproducible; 0: train_batch_size / micro_batch_size
  std::int64_t shard_size = 0;             // ranks of a shard group; 0: all. Smaller: more memory, less traffic
  bool reshard_after_forward = true;       // false: gathered parameters stay until their backward
  bool no_sync = false;            // stages 2 and 3 reduce gradients once an update; costs a whole fp32 gradient a rank
  bool dry_run = false;            // plan, print, stop
  bool force = false;              // go on although the plan says that memory does not suffice
  std::string dump_gradients;      // safetensors file of averaged gradients before clipping
  std::int64_t dump_step = 1;      // the update whose gradients are dumped, counted from 1
  std::int64_t max_bad_steps = 3;  // updates in a row with a loss that is not finite before the run stops (exit 6)
  bool no_decay_1d = false;        // no weight decay for parameters of one dimension
  Backend backend = Backend::kShm;
  DeviceKind device = DeviceKind::kCpu;  // kCpu or kCuda
  bool force_copy = false;               // never map shared parameters: gather as several hosts would
  double comm_timeout_seconds = 600;  // of a collective; smaller: a dead rank is seen sooner, a slow one killed sooner
  LastWindow last_window = LastWindow::kCarry;
  std::vector<std::string> freeze;          // shell patterns over whole parameter names: these are not trained
  std::int64_t early_stopping = 0;          // evaluations in a row without a lower loss before the run ends; 0: never
  bool save_best = false;                   // RUN/best: the model at the evaluation with the lowest loss
  std::vector<std::string> sample_prompts;  // continued while training goes on, as samples; empty: none
  std::int64_t sample_every = 0;            // updates between samples; 0: only at the end
  std::int64_t sample_tokens = 48;          // tokens of a sample at the most; larger: the run waits longer
  bool sample_chat = false;                 // a prompt is a user's message, put into the model's chat template
};

// Low-rank adapters beside frozen weights. Source: LoRA (arXiv 2106.09685), section 4.
struct LoraConfig {
  std::int64_t r = 0;                // rank; 0: no adapters. Larger: more to train, more memory
  double alpha = 16;                 // the adapter's output is multiplied by alpha / r
  double dropout = 0;                // of the adapter's input, in training
  std::vector<std::string> targets;  // last parts of the names of linear layers ("q_proj")
};

// A section of the DeepSpeed JSON that asks for metrics in another form. Files: output_path/job_name, or in RUN.
struct MonitorConfig {
  bool section_present = false;
  bool enabled = false;
  std::string output_path;
  std::string job_name = "DeepSpeedJobName";
};

// Sections of the DeepSpeed JSON that ask where a step's time goes.
struct ProfileConfig {
  bool wall_clock_breakdown = false;   // seconds of forward, backward and update beside each line of the console
  bool flops = false;                  // flops_profiler: one step's operations and rates, as a table
  std::int64_t flops_step = 1;         // which, counted from 1
  std::int64_t flops_top = 1;          // units that the table's summary names
  bool flops_detailed = true;          // a line for each unit
  std::string flops_file;              // empty: the console
  bool comms = false;                  // comms_logger: count, bytes and seconds of each collective, at the end
  bool comms_verbose = false;          // and a line for each call
  std::vector<std::string> comms_ops;  // DeepSpeed's names of the operations that count; empty: all
};

struct TrainConfig {
  BatchConfig batch;
  Precision precision = Precision::kFp32;  // of compute; masters, sums and optimizer state are fp32
  LossScaleConfig loss_scale;
  bool bf16_masters = false;  // masters are bf16: half the memory, updates below 1/256 of a weight are lost
  bool bf16_optimizer_states = false;
  // torch_autocast: parameters stay fp32, matrix products compute in this type (kBf16 or kFp16); absent: off.
  std::optional<Precision> autocast{};
  double gradient_clipping = 1.0;  // limit of the global gradient norm; 0: off; smaller: safer and slower
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ZeroConfig zero;
  OffloadConfig offload_optimizer;
  OffloadConfig offload_param{.buffer_count = 5};
  LoraConfig lora;
  MonitorConfig tensorboard, csv_monitor;
  bool save_16bit_model = false;  // gather compute-dtype weights when saving in stage 3
  CommunicationConfig communication;
  ActivationCheckpointing activation_checkpointing;
  AioConfig aio;
  ProfileConfig profile;
  std::int64_t tensor_parallel_degree = 1;
  std::optional<std::int64_t> steps_per_print;
  RunConfig run;
};

}  // namespace intarsia::config
