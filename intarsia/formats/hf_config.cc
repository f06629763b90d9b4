#include "intarsia/formats/hf_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/hf_config_fields.h"
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
});

// Switches that must be off: the arithmetic they turn on does not exist here.
void refuse_switches(Fields* fields) {
  for (const char* key : {"attention_bias", "mlp_bias", "rope_interleaved", "use_sliding_window", "is_decoder",
                          "add_cross_attention", "tie_encoder_decoder"}) {
    // is_decoder and its kin are written by older versions with their default, false.
    if (fields->boolean(key).value_or(false)) fields->unsupported(key, true, "only false is");
  }
  if (const Json* value = fields->get("hidden_act"); value != nullptr && *value != "silu")
    fields->unsupported("hidden_act", *value, "only \"silu\" is");
  if (const Json* value = fields->get("pretraining_tp"); value != nullptr && *value != 1)
    fields->unsupported("pretraining_tp", *value, "only 1 is");
  if (const Json* value = fields->get("attention_dropout"); value != nullptr && *value != 0)
    fields->unsupported("attention_dropout", *value, "only 0 is");
  if (const Json* value = fields->get("partial_rotary_factor"); value != nullptr && *value != 1)
    fields->unsupported("partial_rotary_factor", *value, "only 1 is");
  for (const char* key : {"quantization_config", "sliding_window", "layer_types", "auto_map", "pruned_heads",
                          "cross_attention_hidden_size"}) {
    const Json* value = fields->get(key);
    if (value != nullptr && !(value->is_structured() && value->empty()))
      fields->unsupported(key, *value, "leave it out");
  }
  if (const Json* value = fields->get("architectures")) {
    if (!value->is_array() || std::ranges::find(*value, "LlamaForCausalLM") == value->end())
      fields->unsupported("architectures", *value, "it must list \"LlamaForCausalLM\"");
  }
}

// One dictionary of rope settings: rope_scaling of transformers 4, or rope_parameters of 5.
void read_rope_dictionary(const std::string& key, const Json& dictionary, HfConfig* config,
                          std::vector<Problem>* problems) {
  Fields fields(dictionary, key + ".", problems);
  const auto new_name = fields.text("rope_type");
  const auto old_name = fields.text("type");
  if (new_name && old_name && *new_name != *old_name)
    fields.bad_value("type", *old_name, concat("the same as rope_type, \"", printable(*new_name), "\""));
  const std::string type = new_name.value_or(old_name.value_or("default"));
  if (const auto theta = fields.positive("rope_theta")) config->rope_theta = *theta;
  if (const Json* value = fields.get("partial_rotary_factor"); value != nullptr && *value != 1)
    fields.unsupported("partial_rotary_factor", *value, "only 1 is");

  RopeScaling scaling;
  if (type == "llama3") {
    scaling.type = RopeType::kLlama3;
    const auto need = [&](const char* name, double* out) {
      if (const auto value = fields.positive(name))
        *out = *value;
      else if (fields.get(name) == nullptr)
        fields.missing(name);
    };
    need("factor", &scaling.factor);
    need("low_freq_factor", &scaling.low_freq_factor);
    need("high_freq_factor", &scaling.high_freq_factor);
    if (const auto value = fields.integer("original_max_position_embeddings", 1))
      scaling.original_max_position_embeddings = *value;
    else if (fields.get("original_max_position_embeddings") == nullptr)
      fields.missing("original_max_position_embeddings");
    if (scaling.factor < 1) fields.bad_value("factor", scaling.factor, "at least 1");
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
      fields.bad_value("high_freq_factor", scaling.high_freq_factor, "above low_freq_factor");
  } else if (type != "default") {
    fields.unsupported(new_name ? "rope_type" : "type", type, "\"default\" and \"llama3\" are");
    return;  // its other keys belong to that type
  }
  config->rope_scaling = scaling;
  for (const std::string& name : fields.unseen())
    fields.unsupported(name, dictionary[name], concat("rope type \"", type, "\" has no such key"));
}

void read_rope(Fields* fields, HfConfig* config, std::vector<Problem>* problems) {
  if (const auto theta = fields->positive("rope_theta")) config->rope_theta = *theta;
  std::optional<HfConfig> first;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = fields->get(key);
    if (value == nullptr) continue;
    if (!value->is_object()) {
      fields->bad_value(key, *value, "an object or null");
      continue;
    }
    HfConfig read = *config;
    read_rope_dictionary(key, *value, &read, problems);
    if (first && *first != read) fields->bad_value(key, *value, "the same as rope_scaling when both are there");
    first = read;
  }
  if (first) *config = *first;
}

void read_sizes(Fields* fields, HfConfig* config, std::vector<Problem>* problems) {
  const auto need = [&](const char* key, std::int64_t* out) {
    if (const auto value = fields->integer(key, 1))
      *out = *value;
    else if (fields->get(key) == nullptr)
      fields->missing(key);
  };
  need("vocab_size", &config->vocab_size);
  need("hidden_size", &config->hidden_size);
  need("intermediate_size", &config->intermediate_size);
  need("num_hidden_layers", &config->num_hidden_layers);
  need("num_attention_heads", &config->num_attention_heads);
  config->max_position_embeddings = fields->integer("max_position_embeddings", 1).value_or(2048);
  config->num_key_value_heads = fields->integer("num_key_value_heads", 1).value_or(config->num_attention_heads);
  const auto head_dim = fields->integer("head_dim", 1);
  if (config->num_attention_heads == 0 || config->hidden_size == 0) return;  // reported above
  const auto wrong = [&](auto... parts) { problems->push_back({ErrorKind::kFormat, concat(parts...)}); };
  if (!head_dim && config->hidden_size % config->num_attention_heads != 0)
    wrong("without \"head_dim\", \"hidden_size\" ", config->hidden_size,
          " must be a multiple of \"num_attention_heads\" ", config->num_attention_heads);
  config->head_dim = head_dim.value_or(config->hidden_size / config->num_attention_heads);
  if (config->head_dim % 2 != 0) wrong("the head size ", config->head_dim, " must be even (rotary embedding)");
  if (config->num_attention_heads % config->num_key_value_heads != 0)
    wrong("\"num_attention_heads\" ", config->num_attention_heads, " must be a multiple of \"num_key_value_heads\" ",
          config->num_key_value_heads);
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

}  // namespace

HfConfig parse_hf_config(const std::string& text, const std::string& path) {
  const Json json = parse_strict_json(text, path);
  std::vector<Problem> problems;
  Fields fields(json, "", &problems);
  HfConfig config;
  const auto model_type = fields.text("model_type");
  // The keys of another family would only be reported as unknown, so this is checked alone.
  INTARSIA_CHECK(kFormat, model_type || !problems.empty(), printable(path), ": \"model_type\" is missing");
  INTARSIA_CHECK(kUnsupported, model_type == "llama", printable(path), ": \"model_type\" ",
                 model_type ? printable(*model_type) : "is not a text and", " is not supported; supported: llama");
  read_sizes(&fields, &config, &problems);
  read_rope(&fields, &config, &problems);
  read_tokens(&fields, &config);
  read_dtype(&fields, &config);
  refuse_switches(&fields);
  config.rms_norm_eps = fields.positive("rms_norm_eps").value_or(config.rms_norm_eps);
  config.initializer_range = fields.positive("initializer_range").value_or(config.initializer_range);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  for (const std::string_view key : kHarmless) fields.ignore(std::string(key));
  for (const std::string& key : fields.unseen())
    if (!key.starts_with('_'))
      fields.unsupported(key, json[key], "this key is unknown for a llama; remove it if it changes no result");
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
  return parse_hf_config(io::read_text_file(path, kMaxConfigBytes), path);
}

}  // namespace intarsia::formats
