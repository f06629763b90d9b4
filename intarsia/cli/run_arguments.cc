#include "intarsia/cli/run_arguments.h"

#include <algorithm>
#include <iostream>

#include "intarsia/base/text.h"
#include "intarsia/config/model_facts.h"
#include "intarsia/launch/environment.h"
#include "intarsia/plan/arch/llama.h"

namespace intarsia::cli {
namespace {

using config::FlagSpec;
using config::FlagType;

bool is_switch(const FlagSpec& spec) { return spec.type == FlagType::kSwitch; }

// Hugging Face's switches that are a value of one of our flags.
struct Shorthand {
  const char* name;
  const char* flag;
  const char* value;
};
constexpr Shorthand kShorthands[] = {
    {"--bf16", "--dtype", "bf16"}, {"--fp16", "--dtype", "fp16"}, {"--gradient-checkpointing", "--recompute", "full"}};

std::string help_of(const FlagSpec& spec) {
  std::string help = spec.help;
  if (!spec.choices.empty()) help += concat(": ", join(spec.choices, " | "));
  if (!spec.default_text.empty()) help += concat(" [", spec.default_text, "]");
  if (!spec.aliases.empty()) help += concat("; also ", join(spec.aliases));
  return help;
}

std::string dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

void RunArguments::add_to(CLI::App& app) {
  app.add_option("--config,--deepspeed", file, "DeepSpeed JSON; its \"intarsia\" section may hold every flag below");
  app.add_option("--trainer", trainer_, "JSON of Hugging Face TrainingArguments that resolve \"auto\"");
  app.add_option("--set", sets_, "PATH=VALUE: override anything, for example zero_optimization.stage=2")
      ->take_all()
      ->expected(1);
  app.add_option("--hidden-size", hidden_size_, "the model's hidden size, where no --model says it");
  for (const Shorthand& shorthand : kShorthands) {
    app.add_flag_callback(
        shorthand.name, [this, name = shorthand.name] { shorthands_.emplace_back(name); },
        concat("same as ", shorthand.flag, " ", shorthand.value));
  }
  for (const FlagSpec& spec : config::run_flags()) {
    if (is_switch(spec)) {
      app.add_flag(spec.name, switches_[spec.name], help_of(spec));
      continue;
    }
    CLI::Option* option = app.add_option(spec.name, values_[spec.name], help_of(spec));
    const bool many = spec.type == FlagType::kTexts || spec.type == FlagType::kNumbers;
    if (!many) option->expected(1);
    // CLI11 would take "[...]" for a list of words.
    if (spec.type == FlagType::kJson) option->allow_extra_args(false);
  }
}

bool RunArguments::parse(CLI::App& app, int argc, char** argv) {
  app.allow_extras();
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word.starts_with("--") && word.size() > 2) {
      const std::size_t equal = word.find('=');
      const std::string name = word.substr(0, equal);
      const FlagSpec* spec = config::find_flag(name);
      if (spec != nullptr) written_[spec->name] = name;
      word = (spec != nullptr ? spec->name : dashes(name)) + (equal == std::string::npos ? "" : word.substr(equal));
    }
    words.push_back(std::move(word));
  }
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return true;
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::kUsage, error.what(), "; ", app.get_name(), " --help lists the flags");
  }
  for (const std::string& word : app.remaining()) {
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    const std::optional<std::string> close = nearest(word, known);
    fail(ErrorKind::kUsage, "unknown argument ", printable(word),
         close ? concat("; did you mean ", *close, "?") : concat("; ", app.get_name(), " --help lists the flags"));
  }
  return false;
}

std::vector<config::FlagValue> RunArguments::flags() const {
  std::vector<config::FlagValue> out;
  for (const FlagSpec& spec : config::run_flags()) {
    const auto spelled = written_.find(spec.name);
    if (spelled == written_.end()) continue;
    if (is_switch(spec)) {
      out.push_back({&spec, spelled->second, {switches_.at(spec.name) ? "on" : "off"}});
    } else {
      out.push_back({&spec, spelled->second, values_.at(spec.name)});
    }
  }
  for (const std::string& name : shorthands_) {
    for (const Shorthand& shorthand : kShorthands) {
      if (name == shorthand.name) out.push_back({config::find_flag(shorthand.flag), name, {shorthand.value}});
    }
  }
  return out;
}

config::ResolveInput RunArguments::input() const {
  config::ResolveInput input;
  input.file = file;
  input.flags = flags();
  input.trainer_file = trainer_;
  input.sets = sets_;
  input.ranks = world_size_of_environment();
  if (hidden_size_ > 0) {
    input.model.hidden_size = hidden_size_;
  } else if (const auto model = values_.find("--model"); model != values_.end() && !model->second.empty()) {
    input.model = config::read_model_facts(model->second[0]);
    if (const auto preset = plan::preset(model->second[0]); preset && !input.model.hidden_size)
      input.model.hidden_size = preset->hidden_size;
  }
  return input;
}

int world_size_of_environment() {
  const std::optional<launch::RankEnvironment> environment = launch::read_environment(launch::process_variables(), "");
  return environment ? environment->world : 1;
}

}  // namespace intarsia::cli
