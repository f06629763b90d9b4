#include "intarsia/config/flags.h"

#include <algorithm>

namespace intarsia::config {
namespace {

// Name, aliases, key in the "intarsia" section, path in the DeepSpeed JSON, type, choices, least value, default, help.
// clang-format off
std::vector<FlagSpec> make_flags() {
  using T = FlagType;
  const std::vector<std::string> on_off = {"on", "off"};
  return {
      {"--model", {"--model_name_or_path"}, "model", "", T::kText, {}, 0, "", "Hugging Face directory, or a preset"},
      {"--data", {"--train_file"}, "data", "", T::kTexts, {}, 0, "",
       "training files: text, JSONL, packed or not, tokens (.bin), samples (.safetensors); globs; FILE:WEIGHT"},
      {"--out", {"--output_dir"}, "out", "", T::kText, {}, 0, "runs/MODEL-N", "directory of the run"},
      {"--ranks", {"--nproc_per_node"}, "ranks", "", T::kInteger, {}, 1, "",
       "local ranks to start; without it a launcher's environment, or one"},
      {"--batch-size", {"--per_device_train_batch_size"}, "batch_size", "train_micro_batch_size_per_gpu",
       T::kWordOrInteger, {"auto"}, 1, "1", "samples of one rank in one pass; auto: the planner chooses"},
      {"--accumulation", {"--gradient_accumulation_steps"}, "accumulation", "gradient_accumulation_steps",
       T::kInteger, {}, 1, "1", "passes per optimizer update"},
      {"--steps", {"--max_steps"}, "steps", "", T::kInteger, {}, 1, "",
       "optimizer updates; without it --epochs decides"},
      {"--epochs", {"--num_train_epochs"}, "epochs", "", T::kNumber, {}, 0, "1", "passes over the data"},
      {"--seq-len", {"--max_seq_length", "--block_size"}, "seq_len", "", T::kInteger, {}, 1,
       "min(2048, the model's maximum)", "tokens of a sample"},
      {"--lr", {"--learning_rate"}, "lr", "optimizer.params.lr", T::kNumber, {}, 0, "5e-5",
       "base learning rate, per update"},
      {"--weight-decay", {"--weight_decay"}, "weight_decay", "optimizer.params.weight_decay", T::kNumber, {}, 0, "0",
       "weight decay, per unit of learning rate"},
      {"--betas", {}, "betas", "optimizer.params.betas", T::kNumbers, {}, 0, "0.9 0.999", "decay of the two moments"},
      {"--eps", {"--adam_epsilon"}, "eps", "optimizer.params.eps", T::kNumber, {}, 0, "1e-8",
       "added to the root of the second moment"},
      {"--optimizer", {"--optim"}, "optimizer", "optimizer.type", T::kText,
       {"AdamW", "Adam", "SGD", "Lion", "Adagrad", "Lamb", "Adafactor", "Muon",
        "adamw", "adam", "sgd", "lion", "adagrad", "lamb", "adafactor", "muon",
        "LAMB", "adamw_torch", "adamw_torch_fused", "lion_32bit"},
       0, "AdamW", "Adam is AdamW too unless optimizer.params.adam_w_mode is false"},
      {"--param-groups", {}, "param_groups", "", T::kJson, {}, 0, "",
       "JSON list of {\"params\": pattern or patterns, \"lr\": , \"weight_decay\": }"},
      {"--ema", {}, "ema", "", T::kJson, {}, 0, "",
       "JSON {\"decay\": 0.999}: keep and export the average of the weights"},
      {"--lora", {}, "lora", "", T::kJson, {}, 0, "",
       "JSON {\"r\": 16, \"alpha\": 32, \"targets\": [\"q_proj\", \"v_proj\"]}: train low-rank adapters beside a "
       "frozen model"},
      {"--warmup", {"--warmup_steps", "--warmup_ratio"}, "warmup", "", T::kNumber, {}, 0, "0",
       "updates of warm-up; below 1: a share of all updates"},
      {"--schedule", {"--lr_scheduler_type"}, "schedule", "", T::kText,
       {"constant", "constant_with_warmup", "linear", "cosine", "cosine_with_min_lr", "cosine_with_restarts",
        "polynomial", "inverse_sqrt", "warmup_stable_decay"},
       0, "constant", "learning rate over the updates"},
      {"--schedule-params", {"--lr_scheduler_kwargs"}, "schedule_params", "", T::kJson, {}, 0, "",
       "JSON object of the schedule's own parameters, by Hugging Face's names"},
      {"--min-lr-ratio", {"--min_lr_rate"}, "min_lr_ratio", "", T::kNumber, {}, 0, "0",
       "floor of cosine_with_min_lr and warmup_stable_decay, as a share of --lr"},
      {"--lr-schedule", {}, "lr_schedule", "", T::kNumbers, {}, 0, "",
       "the learning rate of each update, one number each; the last one stays"},
      {"--clip", {"--max_grad_norm"}, "clip", "gradient_clipping", T::kNumber, {}, 0, "1.0",
       "limit of the global gradient norm; 0 is off"},
      {"--dtype", {}, "dtype", "", T::kText, {"fp32", "bf16", "fp16"}, 0, "fp32",
       "type of compute; master weights stay fp32"},
      {"--stage", {}, "stage", "zero_optimization.stage", T::kWordOrInteger, {"auto"}, 0, "0",
       "ZeRO stage: 0 nothing is sharded, 1 optimizer, 2 and gradients, 3 and parameters; auto: the planner chooses"},
      {"--strategy", {}, "strategy", "", T::kText,
       {"full_shard", "shard_grad_op", "no_shard", "hybrid", "hybrid_zero2"}, 0, "", "the stage in FSDP's words"},
      {"--recompute", {}, "recompute", "", T::kWordOrInteger, {"none", "full", "selective"}, 1, "none",
       "what the backward pass computes again instead of keeping it: every block (full), what lies between matrix "
       "products (selective), or one block in K (a number)"},
      {"--seed", {}, "seed", "", T::kInteger, {}, 0, "42", "seed of everything random"},
      {"--resize-vocab", {}, "resize_vocab", "", T::kWordOrInteger, {"tokenizer"}, 1, "",
       "rows of the embedding and the head, or as many as the tokenizer has tokens; new ones start as the mean of the "
       "old"},
      {"--resize-vocab-multiple", {"--pad_to_multiple_of"}, "resize_vocab_multiple", "", T::kInteger, {}, 1, "1",
       "round --resize-vocab up to a multiple"},
      {"--init", {}, "init", "", T::kText, {"files", "random"}, 0, "files", "where initial weights come from"},
      {"--eval-data", {"--validation_file"}, "eval_data", "", T::kTexts, {}, 0, "", "files to evaluate on"},
      {"--eval-fraction", {}, "eval_fraction", "", T::kNumber, {}, 0, "0",
       "share of the training samples held out to evaluate on"},
      {"--eval-every", {"--eval_steps"}, "eval_every", "", T::kInteger, {}, 0, "0",
       "updates between evaluations; 0: at the end only"},
      {"--save-every", {"--save_steps"}, "save_every", "", T::kInteger, {}, 0, "0",
       "updates between checkpoints; 0: at the end only"},
      {"--keep", {"--save_total_limit"}, "keep", "", T::kInteger, {}, 0, "2", "checkpoints kept; 0: all"},
      {"--keep-every", {}, "keep_every", "", T::kInteger, {}, 0, "0",
       "checkpoints of steps that are multiples of it stay, too; 0: none"},
      {"--async-save", {}, "async_save", "", T::kText, {"off", "wait", "skip"}, 0, "off",
       "write checkpoints while training goes on, from a copy of the state; one that is due meanwhile waits or is "
       "skipped"},
      {"--resume", {"--resume_from_checkpoint"}, "resume", "", T::kText, {}, 0, "auto",
       "auto, never, or the path of a checkpoint"},
      {"--resume-with-changes", {}, "resume_with_changes", "", T::kTexts, {}, 0, "",
       "keys that may differ from the run that is resumed"},
      {"--fresh", {}, "fresh", "", T::kSwitch, {}, 0, "off",
       "begin anew or not at all: refuses a folder that holds checkpoints"},
      {"--overwrite", {"--overwrite_output_dir"}, "overwrite", "", T::kSwitch, {}, 0, "off",
       "remove the run's earlier checkpoints first"},
      {"--log-every", {"--logging_steps"}, "log_every", "", T::kInteger, {}, 1, "10",
       "updates between lines on the console"},
      {"--shuffle", {}, "shuffle", "", T::kOnOff, on_off, 0, "on", "order of the data"},
      {"--pack", {}, "pack", "", T::kText, {"off", "concat", "isolate"}, 0, "concat",
       "documents in samples: one each, one after another, or without attention across"},
      {"--too-long", {}, "too_long", "", T::kText, {"error", "truncate", "drop"}, 0, "error",
       "documents longer than --seq-len with --pack off or isolate"},
      {"--train-on", {}, "train_on", "", T::kText, {"assistant", "all"}, 0, "assistant",
       "which tokens of chats and of prompts with completions the loss counts"},
      {"--bad-lines", {}, "bad_lines", "", T::kText, {"error", "skip"}, 0, "error",
       "JSONL lines that are malformed or that the chat template refuses; skipped ones are counted"},
      {"--threads", {}, "threads", "", T::kInteger, {}, 0, "cores / ranks", "threads of one rank"},
      {"--bind", {}, "bind", "", T::kText, {"none", "cores", "numa"}, 0, "none", "bind each rank to its cores"},
      {"--reproducible", {"--full_determinism"}, "reproducible", "", T::kSwitch, {}, 0, "off",
       "the same bits on any number of ranks; needs more gradient memory"},
      {"--not-reproducible", {}, "not_reproducible", "", T::kSwitch, {}, 0, "off",
       "go on with a reproducible run on any number of ranks, without the same bits from here on"},
      {"--logical-micro-batches", {}, "logical_micro_batches", "", T::kInteger, {}, 0, "",
       "with --reproducible: passes of an update, all ranks together, a power of two; train_batch_size / batch-size"},
      {"--shard-size", {}, "shard_size", "", T::kInteger, {}, 0, "",
       "ranks of a shard group (hybrid sharding); 0: all of them"},
      {"--reshard-after-forward", {}, "reshard_after_forward", "", T::kOnOff, on_off, 0, "on",
       "off: stage 3 keeps gathered parameters until their backward: more memory, less traffic"},
      {"--no-sync", {}, "no_sync", "", T::kSwitch, {}, 0, "off",
       "stages 2 and 3 reduce gradients once an update, not once a micro-step: less traffic, whole gradients in "
       "memory"},
      {"--dry-run", {}, "dry_run", "", T::kSwitch, {}, 0, "off", "print the plan and stop"},
      {"--force", {}, "force", "", T::kSwitch, {}, 0, "off", "start although memory may not suffice"},
      {"--dump-gradients", {}, "dump_gradients", "", T::kText, {}, 0, "",
       "write averaged gradients before clipping to this safetensors file"},
      {"--dump-step", {}, "dump_step", "", T::kInteger, {}, 1, "1", "the update whose gradients are dumped"},
      {"--max-bad-steps", {}, "max_bad_steps", "", T::kInteger, {}, 1, "3",
       "updates in a row whose loss is not finite before the run stops"},
      {"--no-decay-1d", {}, "no_decay_1d", "", T::kSwitch, {}, 0, "off", "no weight decay for norms and biases"},
      {"--backend", {"--ddp_backend"}, "backend", "", T::kText, {"threads", "shm", "gloo"}, 0, "shm",
       "how ranks talk"},
      {"--device", {}, "device", "", T::kText, {"cpu", "cuda"}, 0, "cpu",
       "where ranks compute; cuda needs a build with the CUDA plugin and was never run"},
      {"--force-copy", {}, "force_copy", "", T::kSwitch, {}, 0, "off",
       "gather parameters by copying, as several hosts do"},
      {"--comm-timeout", {"--ddp_timeout"}, "comm_timeout_seconds", "", T::kNumber, {}, 0, "600",
       "seconds before a collective gives up"},
      {"--freeze", {}, "freeze", "", T::kTexts, {}, 0, "",
       "patterns of parameter names that are not trained, such as \"model.embed_tokens.*\" \"model.layers.[0-9].*\""},
      {"--early-stopping", {"--early_stopping_patience"}, "early_stopping", "", T::kInteger, {}, 0, "0",
       "end after so many evaluations in a row without a lower loss; 0: never"},
      {"--save-best", {}, "save_best", "", T::kSwitch, {}, 0, "off",
       "keep the model of the best evaluation in RUN/best"},
      {"--sample-prompts", {}, "sample_prompts", "", T::kTexts, {}, 0, "",
       "texts that the model continues while it is trained, for the console, samples.jsonl and report.html"},
      {"--sample-every", {}, "sample_every", "", T::kInteger, {}, 0, "0",
       "updates between samples; 0: at the end only"},
      {"--sample-tokens", {}, "sample_tokens", "", T::kInteger, {}, 1, "48", "tokens of a sample at the most"},
      {"--sample-chat", {}, "sample_chat", "", T::kSwitch, {}, 0, "off",
       "sample prompts are a user's messages, put into the model's chat template"},
      {"--last-window", {}, "last_window", "", T::kText, {"carry", "flush", "drop"}, 0, "carry",
       "micro-batches left at the end of an epoch: into the next epoch, a short update, or unused"},
  };
}
// clang-format on

// "--learning-rate" and "--learning_rate" are the same flag.
std::string with_dashes(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

}  // namespace

const std::vector<FlagSpec>& run_flags() {
  static const std::vector<FlagSpec> kFlags = make_flags();
  return kFlags;
}

const FlagSpec* find_flag(std::string_view name) {
  const std::string wanted = with_dashes(name);
  for (const FlagSpec& flag : run_flags()) {
    if (flag.name == wanted) return &flag;
    for (const std::string& alias : flag.aliases) {
      if (with_dashes(alias) == wanted) return &flag;
    }
  }
  return nullptr;
}

const FlagSpec* find_flag_by_key(std::string_view key) {
  for (const FlagSpec& flag : run_flags()) {
    if (flag.key == key) return &flag;
  }
  return nullptr;
}

}  // namespace intarsia::config
