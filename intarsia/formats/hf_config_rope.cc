// Rotary embedding's settings: rope_scaling of transformers 4, rope_parameters of 5.
#include <cmath>

#include "intarsia/base/text.h"
#include "intarsia/formats/hf_config_read.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::json;

void need_positive(Fields* fields, const char* name, double* out) {
  if (const auto value = fields->positive(name))
    *out = *value;
  else if (fields->get(name) == nullptr)
    fields->missing(name);
}

void read_llama3(Fields* fields, RopeScaling* scaling) {
  need_positive(fields, "low_freq_factor", &scaling->low_freq_factor);
  need_positive(fields, "high_freq_factor", &scaling->high_freq_factor);
  fields->need("original_max_position_embeddings", &scaling->original_max_position_embeddings);
  if (scaling->high_freq_factor <= scaling->low_freq_factor)
    fields->bad_value("high_freq_factor", scaling->high_freq_factor, "above low_freq_factor");
}

// Source: YaRN (arXiv 2309.00071), section 3.4, for the attention factor.
double mscale(double factor, double slope) { return factor <= 1 ? 1 : 0.1 * slope * std::log(factor) + 1; }

void read_yarn(Fields* fields, std::int64_t max_positions, RopeScaling* scaling) {
  scaling->original_max_position_embeddings =
      fields->integer("original_max_position_embeddings", 1).value_or(max_positions);
  scaling->beta_fast = fields->positive("beta_fast").value_or(scaling->beta_fast);
  scaling->beta_slow = fields->positive("beta_slow").value_or(scaling->beta_slow);
  if (scaling->beta_fast < scaling->beta_slow) fields->bad_value("beta_fast", scaling->beta_fast, "at least beta_slow");
  scaling->truncate = fields->boolean("truncate").value_or(true);
  const auto given = fields->positive("attention_factor");
  const auto above = fields->positive("mscale"), below = fields->positive("mscale_all_dim");
  if (given)
    scaling->attention_factor = *given;
  else if (above && below)
    scaling->attention_factor = mscale(scaling->factor, *above) / mscale(scaling->factor, *below);
  else
    scaling->attention_factor = mscale(scaling->factor, 1);
}

void read_rope_dictionary(const std::string& key, const Json& dictionary, HfConfig* config,
                          std::vector<Problem>* problems) {
  Fields fields(dictionary, key + ".", problems);
  const auto new_name = fields.text("rope_type");
  const auto old_name = fields.text("type");
  if (new_name && old_name && *new_name != *old_name)
    fields.bad_value("type", *old_name, concat("the same as rope_type, \"", printable(*new_name), "\""));
  const std::string type = new_name.value_or(old_name.value_or("default"));
  if (const auto theta = fields.positive("rope_theta")) config->rope_theta = *theta;
  fields.must_be("partial_rotary_factor", 1);

  RopeScaling scaling;
  if (type == "linear") {
    scaling.type = RopeType::kLinear;
  } else if (type == "dynamic") {
    scaling.type = RopeType::kDynamic;
  } else if (type == "yarn") {
    scaling.type = RopeType::kYarn;
  } else if (type == "llama3") {
    scaling.type = RopeType::kLlama3;
  } else if (type != "default") {
    fields.unsupported(new_name ? "rope_type" : "type", type,
                       "\"default\", \"linear\", \"dynamic\", \"yarn\" and \"llama3\" are");
    return;  // its other keys belong to that type
  }
  if (scaling.type != RopeType::kDefault) {
    need_positive(&fields, "factor", &scaling.factor);
    if (scaling.factor < 1) fields.bad_value("factor", scaling.factor, "at least 1");
  }
  if (scaling.type == RopeType::kLlama3) read_llama3(&fields, &scaling);
  if (scaling.type == RopeType::kYarn) read_yarn(&fields, config->max_position_embeddings, &scaling);
  if (scaling.type == RopeType::kDynamic && config->head_dim == 2)
    fields.bad_value("rope_type", type, "another one for heads of size 2");
  config->rope_scaling = scaling;
  for (const std::string& name : fields.unseen())
    fields.unsupported(name, dictionary[name], concat("rope type \"", type, "\" has no such key"));
}

}  // namespace

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

}  // namespace intarsia::formats
