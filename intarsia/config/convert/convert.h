// Between a DeepSpeed JSON and the FSDP words of an Accelerate YAML. Both are read into what they have in common; what
// one says and the other has no word for is listed, never lost in silence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "intarsia/config/resolve.h"

namespace intarsia::config {

// What both have words for. Absent: the file leaves it open (an "auto", or not said).
struct ShardingWords {
  std::optional<int> stage = {};              // ZeRO
  std::optional<std::string> precision = {};  // "fp32", "fp16", "bf16"
  bool offload_params = false, offload_optimizer = false;
  std::int64_t shard_group = 0;          // ranks that share one copy; 0: all
  bool checkpointing = false;            // blocks are recomputed
  bool whole_state_dict = false;         // a save gathers whole weights
  std::int64_t ranks = 0, machines = 1;  // 0: not said
};

struct SaidWords {
  ShardingWords words;
  // One line each: "PATH = VALUE: why, and where it belongs instead".
  std::vector<std::string> unsaid = {};
  std::vector<Report> warnings = {};
};

struct ConvertedConfig {
  std::string text;
  std::vector<std::string> unsaid = {};  // of the reader, then of the writer
};

// Reads a DeepSpeed JSON, checked as `config check` does but without settling an "auto". `ranks`: of the run; 0: not
// known. Errors: ConfigError with every problem.
SaidWords read_deepspeed_words(const std::string& path, std::int64_t ranks);

// Reads an Accelerate YAML: its FSDP section (version 1 or 2), or its DeepSpeed section. Errors: ConfigError with every
// unknown key and its nearest, wrong type and value.
SaidWords read_accelerate_words(const std::string& path);

// The words as an Accelerate YAML for FSDP2, or as a DeepSpeed JSON.
ConvertedConfig write_accelerate(SaidWords said);
ConvertedConfig write_deepspeed(SaidWords said);

}  // namespace intarsia::config
