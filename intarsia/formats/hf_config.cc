#include "intarsia/formats/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/hf_config_read.h"
#include "intarsia/formats/model_directory.h"
#include "intarsia/formats/strict_json.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxConfigBytes = 1 << 20;

// Keys that change neither the weights nor the loss: bookkeeping, and settings of generation and of Python classes.
constexpr auto kHarmless = std::to_array<std::string_view>({
    "transformers_version",
    "use_cache",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "torchscript",
    "use_bfloat16",
    "chunk_size_feed_forward",
    "is_encoder_decoder",
    "finetuning_task",
    "id2label",
    "label2id",
    "problem_type",
    "num_labels",
    "tokenizer_class",
    "prefix",
    "task_specific_params",
    "max_sequence_length",
    "is_llama_config",
    "unsloth_fixed",
    "unsloth_version",
    "transformers.js_config",
    "sep_token_id",
    "decoder_start_token_id",
    "max_length",
    "min_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "output_scores",
    "return_dict_in_generate",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "base_model_tp_plan",
    "base_model_pp_plan",
    "keys_to_ignore_at_inference",
    "gradient_checkpointing",
});

// Switches of transformers' base class, which older versions write with their defaults.
void refuse_switches(Fields* fields) {
  for (const char* key : {"is_decoder", "add_cross_attention", "tie_encoder_decoder"}) fields->must_be_off(key);
  for (const char* key : {"quantization_config", "auto_map", "pruned_heads", "cross_attention_hidden_size"}) {
    const Json* value = fields->get(key);
    if (value != nullptr && !(value->is_structured() && value->empty()))
      fields->unsupported(key, *value, "leave it out");
  }
}

void read_tokens(Fields* fields, HfConfig* config) {
  config->bos_token_id = fields->integer("bos_token_id", 0);
  // Some configs say -1 for "no padding token".
  config->pad_token_id = fields->integer("pad_token_id", -1);
  if (config->pad_token_id == -1) config->pad_token_id.reset();
  const Json* eos = fields->get("eos_token_id");
  if (eos == nullptr) return;
  const Json list = eos->is_array() ? *eos : Json::array({*eos});
  for (const Json& id : list) {
    if (id.is_number_unsigned() && id.get<std::uint64_t>() < (std::uint64_t{1} << 31)) {
      config->eos_token_ids.push_back(id.get<std::int64_t>());
    } else {
      fields->bad_value("eos_token_id", *eos, "a token id, a list of token ids, or null");
      return;
    }
  }
}

void read_dtype(Fields* fields, HfConfig* config) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto text = fields->text(key);
    if (!text) continue;
    const std::string name = text->starts_with("torch.") ? text->substr(6) : *text;
    if (name == "float32")
      config->dtype = DType::kF32;
    else if (name == "bfloat16")
      config->dtype = DType::kBF16;
    else if (name == "float16")
      config->dtype = DType::kF16;
    else if (name == "float64")
      config->dtype = DType::kF64;
    else
      fields->unsupported(key, *text, "float32, bfloat16, float16 and float64 are");
  }
}

// GPT-2's weights with "transformer." in front are those that transformers saves, the published ones have nothing.
std::string gpt2_prefix(const std::string& directory) {
  std::error_code error;
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (std::filesystem::exists(directory + "/" + name, error))
      return ModelDirectory::open(directory).find("wte.weight").tensor != nullptr ? "" : "transformer.";
  return "transformer.";
}

}  // namespace

std::int64_t HfConfig::longest_sequence() const {
  if (rope_scaling.type != RopeType::kDynamic) return max_position_embeddings;
  return static_cast<std::int64_t>(std::floor(rope_scaling.factor * static_cast<double>(max_position_embeddings)));
}

std::vector<std::string> known_model_types() {
  std::vector<std::string> names;
  for (const LlamaFamily& family : llama_families()) names.emplace_back(family.model_type);
  names.emplace_back("gpt2");
  return names;
}

void read_dropout(Fields* fields, const std::string& key, double when_absent, HfConfig* config) {
  const double probability = fields->fraction(key).value_or(when_absent);
  if (probability > 0) config->dropout[key] = probability;
}

void check_architecture(Fields* fields, const std::string& class_name) {
  const Json* value = fields->get("architectures");
  if (value == nullptr) return;
  if (!value->is_array() || std::ranges::find(*value, Json(class_name)) == value->end())
    fields->unsupported("architectures", *value, concat("it must list \"", class_name, "\""));
}

HfConfig parse_hf_config(const std::string& text, const std::string& path) {
  const Json json = parse_strict_json(text, path);
  std::vector<Problem> problems;
  Fields fields(json, "", &problems);
  HfConfig config;
  const auto model_type = fields.text("model_type");
  // The keys of another family would only be reported as unknown, so this is checked alone.
  INTARSIA_CHECK(kFormat, model_type || !problems.empty(), printable(path), ": \"model_type\" is missing");
  const std::vector<std::string> known = known_model_types();
  INTARSIA_CHECK(kUnsupported, model_type && std::ranges::find(known, *model_type) != known.end(), printable(path),
                 ": \"model_type\" ", model_type ? printable(*model_type) : "is not a text and",
                 " is not supported; supported: ", join(known));
  config.model_type = *model_type;
  if (config.model_type == "gpt2")
    read_gpt2(&fields, &config, &problems);
  else
    read_llama(&fields, &config, &problems);
  read_tokens(&fields, &config);
  read_dtype(&fields, &config);
  refuse_switches(&fields);
  config.initializer_range = fields.positive("initializer_range").value_or(config.initializer_range);
  for (const std::string_view key : kHarmless) fields.ignore(std::string(key));
  for (const std::string& key : fields.unseen())
    if (!key.starts_with('_'))
      fields.unsupported(key, json[key],
                         concat("this key is unknown for ", config.model_type, "; remove it if it changes no result"));
  if (problems.empty()) return config;
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.text);
  fail(problems.front().kind, printable(path), ": ", join(texts, "; "));
}

HfConfig read_hf_config(const std::string& directory) {
  std::error_code error;
  INTARSIA_CHECK(kIo, std::filesystem::is_directory(directory, error), printable(directory),
                 " is not a folder; a model is a Hugging Face directory with config.json and model.safetensors");
  const std::string path = directory + "/config.json";
  INTARSIA_CHECK(kIo, std::filesystem::exists(path, error), printable(directory),
                 " has no config.json; a model is a Hugging Face directory with config.json and model.safetensors");
  HfConfig config = parse_hf_config(io::read_text_file(path, kMaxConfigBytes), path);
  if (config.model_type == "gpt2") config.tensor_prefix = gpt2_prefix(directory);
  return config;
}

}  // namespace intarsia::formats
