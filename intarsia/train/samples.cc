#include "intarsia/train/samples.h"

#include <nlohmann/json.hpp>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/train/chat.h"
#include "intarsia/train/generate.h"

namespace intarsia::train {

std::vector<SamplePrompt> encode_prompts(const std::vector<std::string>& prompts, bool chat, const TrainJob& job,
                                         std::int64_t seq_len) {
  std::vector<SamplePrompt> out;
  if (prompts.empty()) return out;
  INTARSIA_CHECK(kConfig, job.tokenizer.has_value(),
                 "--sample-prompts: the model has no tokenizer.json to read a prompt with; put it beside config.json, "
                 "or leave the prompts out");
  INTARSIA_CHECK(kConfig, !chat || job.chat.has_value(),
                 "--sample-chat: the model's directory has no chat template; put chat_template.jinja beside "
                 "config.json, or leave --sample-chat out");
  for (const std::string& prompt : prompts) {
    SamplePrompt& item = out.emplace_back();
    item.text = prompt;
    if (chat) {
      item.ids = open_answer(*job.chat, *job.tokenizer, {{{"role", "user"}, {"content", prompt}}});
    } else {
      const std::vector<std::int32_t> ids = job.tokenizer->encode(prompt, true);
      item.ids.assign(ids.begin(), ids.end());
    }
    INTARSIA_CHECK(kConfig, !item.ids.empty(), "--sample-prompts: ", printable(prompt), " has no token; give a text");
    INTARSIA_CHECK(kConfig, static_cast<std::int64_t>(item.ids.size()) < seq_len,
                   "--sample-prompts: ", printable(prompt.substr(0, 60)), " has ", item.ids.size(),
                   " tokens; allowed: fewer than --seq-len ", seq_len);
  }
  return out;
}

std::vector<Sample> write_samples(shard::Engine& engine, models::Model& model, const TrainJob& job, std::int64_t step) {
  std::vector<Sample> out;
  GenerateOptions options{
      .max_new_tokens = job.samples.tokens,
      .temperature = 0.8,
      .top_p = 0.95,
      .seed = job.plan.seed,
      .stop_ids = stop_ids(job.model, job.tokenizer ? &*job.tokenizer : nullptr, job.chat ? &*job.chat : nullptr)};
  for (const SamplePrompt& prompt : job.samples.prompts) {
    formats::StreamDecoder decoder(*job.tokenizer, true);
    Sample& sample = out.emplace_back(Sample{step, prompt.text, ""});
    models::KeyValueCache cache;
    generate(engine, model, job.plan.seq_len, prompt.ids, options, cache, [&](std::int64_t id) {
      sample.text += decoder.push(static_cast<std::int32_t>(id));
      return true;
    });
    sample.text += decoder.finish();
  }
  return out;
}

}  // namespace intarsia::train
