// The run's own settings, from what was asked under each flag's key.
#include "intarsia/config/readers/deepspeed_rules.h"

namespace intarsia::config {
namespace {

class Settings {
 public:
  explicit Settings(const Draft& draft) : draft_(draft) {}

  void text(const char* key, std::string& to) const {
    if (const Asked* asked = draft_.find_asked(key)) to = asked->values[0];
  }
  void texts(const char* key, std::vector<std::string>& to) const {
    if (const Asked* asked = draft_.find_asked(key)) to = asked->values;
  }
  template <typename Integer>
  void integer(const char* key, Integer& to) const {
    if (const Asked* asked = draft_.find_asked(key)) to = static_cast<Integer>(*parse_integer(asked->values[0]));
  }
  void number(const char* key, double& to) const {
    if (const Asked* asked = draft_.find_asked(key)) to = *parse_number(asked->values[0]);
  }
  void on(const char* key, bool& to) const {
    if (const Asked* asked = draft_.find_asked(key)) to = asked->values[0] == "on";
  }
  // The index-th choice of the flag's row is the index-th value of the enumeration.
  template <typename Enum>
  void choice(const char* key, Enum& to) const {
    const Asked* asked = draft_.find_asked(key);
    if (asked == nullptr) return;
    const std::vector<std::string>& choices = find_flag_by_key(key)->choices;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] == asked->values[0]) to = static_cast<Enum>(i);
    }
  }

 private:
  const Draft& draft_;
};

void resolve_recompute(const Settings& settings, Draft& draft) {
  RunConfig& run = draft.result.config.run;
  const Asked* asked = draft.find_asked("recompute");
  settings.choice("recompute", run.recompute);
  if (asked != nullptr) {
    if (const auto every = parse_integer(asked->values[0])) {
      run.recompute = Recompute::kEveryK;
      run.recompute_every = *every;
    }
  }
  const ActivationCheckpointing& section = draft.result.config.activation_checkpointing;
  if (!section.section_present) return;
  const formats::JsonPlace place = draft.sections["activation_checkpointing"];
  if (asked == nullptr) {
    run.recompute = Recompute::kFull;
    draft.report(Report::Level::kNote, "activation_checkpointing", place,
                 section.number_checkpoints
                     ? concat("read as: blocks are recomputed in the backward pass, in ", *section.number_checkpoints,
                              " pieces of consecutive blocks (or one for each block, if there are fewer)")
                     : std::string("read as intarsia.recompute full: every block is recomputed in the backward pass"));
    return;
  }
  if (asked->from == From::kTrainer || asked->from == From::kSet) return;
  if (asked->values[0] == "none")
    draft.problem("activation_checkpointing", place, "",
                  concat("asks for recomputed activations and contradicts ", asked->shown), "remove one");
  if (asked->values[0] != "full" && section.number_checkpoints)
    draft.problem("activation_checkpointing.number_checkpoints", place, std::to_string(*section.number_checkpoints),
                  concat("asks for blocks recomputed in pieces and contradicts ", asked->shown), "remove one");
}

void resolve_eval_fraction(Draft& draft) {
  const Asked* asked = draft.find_asked("eval_fraction");
  if (asked == nullptr) return;
  const RunConfig& run = draft.result.config.run;
  if (run.eval_fraction < 0 || run.eval_fraction >= 1)
    draft.problem(asked->path, asked->place, asked->values[0], "a share below 1 is expected");
  if (run.eval_fraction > 0 && !run.eval_data.empty())
    draft.problem(asked->path, asked->place, asked->values[0],
                  "held-out samples beside files to evaluate on (eval_data)", "remove one");
}

void resolve_vocabulary(const Settings& settings, Draft& draft) {
  RunConfig& run = draft.result.config.run;
  settings.integer("resize_vocab_multiple", run.resize_vocab_multiple);
  const Asked *rows = draft.find_asked("resize_vocab"), *multiple = draft.find_asked("resize_vocab_multiple");
  if (rows != nullptr) run.resize_vocab = parse_integer(rows->values[0]).value_or(0);
  if (rows == nullptr && multiple != nullptr)
    draft.problem(multiple->path, multiple->place, multiple->values[0], "without a new size it does nothing",
                  "--resize-vocab N or --resize-vocab tokenizer");
}

void resolve_samples(Draft& draft) {
  const RunConfig &run = draft.result.config.run, untouched;
  if (!run.sample_prompts.empty()) return;
  const auto idle = [&](const char* key, bool set) {
    const Asked* asked = draft.find_asked(key);
    if (asked != nullptr && set)
      draft.problem(asked->path, asked->place, asked->values[0], "without prompts it does nothing",
                    "--sample-prompts TEXT...");
  };
  idle("sample_every", run.sample_every != untouched.sample_every);
  idle("sample_tokens", run.sample_tokens != untouched.sample_tokens);
  idle("sample_chat", run.sample_chat);
}

// It takes back what a file or the run's earlier settings say; beside the flags it would contradict them.
void resolve_not_reproducible(Draft& draft) {
  RunConfig& run = draft.result.config.run;
  if (!run.not_reproducible) return;
  for (const char* key : {"reproducible", "logical_micro_batches"}) {
    const Asked* asked = draft.find_asked(key);
    if (asked != nullptr && asked->from == From::kFlag)
      draft.problem(asked->path, asked->place, asked->values[0], "contradicts not_reproducible", "remove one");
  }
  run.reproducible = false;
  run.logical_micro_batches = 0;
}

}  // namespace

void resolve_run(Draft& draft) {
  RunConfig& run = draft.result.config.run;
  const Settings settings(draft);
  settings.text("model", run.model);
  settings.texts("data", run.data);
  settings.text("out", run.out);
  run.ranks = draft.ranks;
  settings.integer("steps", run.steps);
  settings.number("epochs", run.epochs);
  settings.integer("seq_len", run.seq_len);
  settings.integer("seed", run.seed);
  std::string init = "files";
  settings.text("init", init);
  run.init_random = init == "random";
  resolve_vocabulary(settings, draft);
  settings.texts("eval_data", run.eval_data);
  settings.number("eval_fraction", run.eval_fraction);
  resolve_eval_fraction(draft);
  settings.integer("eval_every", run.eval_every);
  settings.integer("save_every", run.save_every);
  settings.integer("keep", run.keep);
  settings.integer("keep_every", run.keep_every);
  settings.choice("async_save", run.async_save);
  settings.text("resume", run.resume);
  settings.texts("resume_with_changes", run.resume_with_changes);
  settings.on("fresh", run.fresh);
  settings.on("overwrite", run.overwrite);
  if (draft.result.config.steps_per_print) run.log_every = *draft.result.config.steps_per_print;
  settings.integer("log_every", run.log_every);
  settings.on("shuffle", run.shuffle);
  settings.choice("pack", run.pack);
  settings.choice("too_long", run.too_long);
  settings.choice("train_on", run.train_on);
  settings.choice("bad_lines", run.bad_lines);
  settings.integer("threads", run.threads);
  settings.choice("bind", run.bind);
  settings.on("reproducible", run.reproducible);
  settings.integer("logical_micro_batches", run.logical_micro_batches);
  settings.on("not_reproducible", run.not_reproducible);
  resolve_not_reproducible(draft);
  settings.integer("shard_size", run.shard_size);
  settings.on("reshard_after_forward", run.reshard_after_forward);
  settings.on("no_sync", run.no_sync);
  settings.on("dry_run", run.dry_run);
  settings.on("force", run.force);
  settings.text("dump_gradients", run.dump_gradients);
  settings.integer("dump_step", run.dump_step);
  settings.integer("max_bad_steps", run.max_bad_steps);
  settings.on("no_decay_1d", run.no_decay_1d);
  settings.choice("backend", run.backend);
  settings.choice("device", run.device);
  settings.on("force_copy", run.force_copy);
  settings.number("comm_timeout_seconds", run.comm_timeout_seconds);
  settings.choice("last_window", run.last_window);
  settings.texts("freeze", run.freeze);
  settings.integer("early_stopping", run.early_stopping);
  settings.on("save_best", run.save_best);
  settings.texts("sample_prompts", run.sample_prompts);
  settings.integer("sample_every", run.sample_every);
  settings.integer("sample_tokens", run.sample_tokens);
  settings.on("sample_chat", run.sample_chat);
  resolve_samples(draft);
  resolve_recompute(settings, draft);
  const Asked* threads = draft.find_asked("threads");
  if (threads != nullptr && *parse_integer(threads->values[0]) > 4096)
    draft.problem(threads->path, threads->place, threads->values[0], "at most 4096 is expected");
  const Asked* timeout = draft.find_asked("comm_timeout_seconds");
  if (timeout != nullptr && run.comm_timeout_seconds <= 0)
    draft.problem(timeout->path, timeout->place, timeout->values[0], "more than 0 seconds is expected");
  for (const char* key : {"early_stopping", "save_best"}) {
    const Asked* asked = draft.find_asked(key);
    if (asked == nullptr || (run.early_stopping == 0 && !run.save_best)) continue;
    if (run.eval_every == 0 || (run.eval_data.empty() && run.eval_fraction == 0))
      draft.problem(asked->path, asked->place, asked->values.empty() ? "" : asked->values[0],
                    "without evaluations in the run it does nothing",
                    "--eval-every N with --eval-data FILE or --eval-fraction F");
  }
  if (draft.find_asked("dump_step") != nullptr && draft.find_asked("dump_gradients") == nullptr) {
    const Asked& step = *draft.find_asked("dump_step");
    draft.problem(step.path, step.place, step.values[0], "without a file to dump to it does nothing",
                  "--dump-gradients FILE");
  }
}

}  // namespace intarsia::config
