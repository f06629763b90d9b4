// The parts of reading config.json: one function a family, and what families share. Internal to formats.
#pragma once

#include <string>
#include <vector>

#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/hf_config_fields.h"

namespace intarsia::formats {

// Llama and the families that are Llama with other settings.
struct LlamaFamily {
  const char* model_type;
  const char* class_name;
  std::int64_t max_positions;  // transformers' defaults
  std::int64_t kv_heads;       // 0: as many as heads
  std::int64_t head_dim;       // 0: hidden_size / num_attention_heads
};
const std::vector<LlamaFamily>& llama_families();
const LlamaFamily* find_llama_family(const std::string& model_type);  // null: of another kind

// Each reads the family's own keys into `config`, whose model_type is set, and adds to `problems` what is wrong.
void read_llama(Fields* fields, HfConfig* config, std::vector<Problem>* problems);
void read_gpt2(Fields* fields, HfConfig* config, std::vector<Problem>* problems);

// rope_theta, rope_scaling and rope_parameters. Needs max_position_embeddings.
void read_rope(Fields* fields, HfConfig* config, std::vector<Problem>* problems);

// The probability `key`, kept by its name when it is above 0.
void read_dropout(Fields* fields, const std::string& key, double when_absent, HfConfig* config);

// "architectures" must list `class_name`, if it is there.
void check_architecture(Fields* fields, const std::string& class_name);

}  // namespace intarsia::formats
