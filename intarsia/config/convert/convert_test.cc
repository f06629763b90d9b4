// The fixtures of Accelerate and DeepSpeed, read into the words that both have, and back.
#include "intarsia/config/convert/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "intarsia/base/text.h"

namespace intarsia::config {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kRoot = "tests/fixtures/configs/";

json expected() {
  std::ifstream file(kRoot + "expected.json");
  return json::parse(file);
}

// A text as a file, for the readers.
class AsFile {
 public:
  AsFile(const std::string& text, const std::string& ending)
      : path_((fs::temp_directory_path() / concat("intarsia-convert-", ::getpid(), ending)).string()) {
    std::ofstream(path_) << text;
  }
  ~AsFile() { fs::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string problems_of(const std::string& file) {
  try {
    read_accelerate_words(file);
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << file << " was accepted";
  return "";
}

bool says(const std::vector<std::string>& lines, const std::string& text) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

void expect_same(const ShardingWords& a, const ShardingWords& b) {
  EXPECT_EQ(a.stage, b.stage);
  EXPECT_EQ(a.precision, b.precision);
  EXPECT_EQ(a.offload_params, b.offload_params);
  EXPECT_EQ(a.offload_optimizer, b.offload_optimizer);
  EXPECT_EQ(a.shard_group, b.shard_group);
  EXPECT_EQ(a.checkpointing, b.checkpointing);
  EXPECT_EQ(a.whole_state_dict, b.whole_state_dict);
}

TEST(ConfigConvert, AcceleratesFilesMeanWhatAccelerateMakesOfThem) {
  int seen = 0;
  const json all = expected();
  for (const auto& [path, record] : all["valid"].items()) {
    if (record["format"] != "accelerate" || path == "accelerate/ds_from_file.yaml") continue;
    SCOPED_TRACE(path);
    ++seen;
    const ShardingWords words = read_accelerate_words(kRoot + path).words;
    const json& effective = record["effective"];
    const std::string precision = effective["mixed_precision"];
    EXPECT_EQ(words.precision, precision == "no" ? "fp32" : precision);
    EXPECT_EQ(words.ranks, effective["num_processes"].get<std::int64_t>());
    if (effective.contains("deepspeed")) {
      EXPECT_EQ(words.stage, effective["deepspeed"]["zero_stage"].get<int>());
      EXPECT_EQ(words.offload_optimizer, effective["deepspeed"]["offload"]["optimizer"]["device"] != "none");
      EXPECT_EQ(words.whole_state_dict, effective["deepspeed"]["save_16bit_model"].get<bool>());
    } else if (effective.contains("fsdp")) {
      const json& fsdp = effective["fsdp"];
      EXPECT_EQ(words.stage, fsdp["reshard_after_forward"].get<bool>() ? 3 : 2);
      EXPECT_EQ(words.offload_params, fsdp["offload_params"].get<bool>());
      EXPECT_EQ(words.checkpointing, fsdp["activation_checkpointing"].get<bool>());
      EXPECT_EQ(words.whole_state_dict, fsdp["state_dict_type"] == "FULL_STATE_DICT");
      EXPECT_EQ(words.shard_group, fsdp["sharding_strategy"] == "HYBRID_SHARD" ? 8 : 0);
    } else {
      EXPECT_EQ(words.stage, 0);
    }
  }
  EXPECT_EQ(seen, 13);
}

TEST(ConfigConvert, FromYamlToJsonAndBackIsTheSame) {
  for (const char* name : {"fsdp1_full_shard", "fsdp1_hybrid", "fsdp1_lora_offload", "fsdp2_sharded", "ds_zero2_clip",
                           "ds_zero3_save16", "multi_gpu_bf16", "one_process", "fsdp1_by_number_size_wrap"}) {
    SCOPED_TRACE(name);
    const SaidWords said = read_accelerate_words(concat(kRoot, "accelerate/", name, ".yaml"));
    const AsFile file(write_deepspeed(said).text, ".json");
    expect_same(read_deepspeed_words(file.path(), said.words.ranks).words, said.words);
  }
}

TEST(ConfigConvert, FromJsonToYamlAndBackIsTheSameWhereFsdpHasWords) {
  int seen = 0;
  const json all = expected();
  for (const auto& [path, record] : all["valid"].items()) {
    if (record["format"] != "deepspeed") continue;
    SCOPED_TRACE(path);
    ++seen;
    const SaidWords said = read_deepspeed_words(kRoot + path, 8);
    const json& effective = record["effective"];
    EXPECT_EQ(said.words.stage, effective["zero_stage"].get<int>());
    // A trainer brings its own to a file that says none.
    if (said.words.precision && !record.contains("trainer")) {
      EXPECT_EQ(*said.words.precision, effective["precision"].get<std::string>());
    }
    const AsFile file(write_accelerate(said).text, ".yaml");
    ShardingWords wanted = said.words;
    if (wanted.stage == 1) wanted.stage = 2;  // the words that FSDP lacks
    if (!wanted.precision) wanted.precision = "fp32";
    wanted.offload_optimizer = wanted.offload_params = wanted.offload_params && wanted.stage != 0;
    if (wanted.stage == 0) wanted.checkpointing = wanted.whole_state_dict = false;
    expect_same(read_accelerate_words(file.path()).words, wanted);
  }
  EXPECT_GT(seen, 20);
}

TEST(ConfigConvert, WhatFsdpCannotSayIsListed) {
  const ConvertedConfig nvme = write_accelerate(read_deepspeed_words(kRoot + "deepspeed/z3_nvme.json", 8));
  EXPECT_TRUE(says(nvme.unsaid, "offload_param.device = \"nvme\": FSDP offloads to host memory only"));
  const ConvertedConfig one = write_accelerate(read_deepspeed_words(kRoot + "deepspeed/z1_onecycle.json", 0));
  EXPECT_TRUE(says(one.unsaid, "zero_optimization.stage = 1: FSDP has no word"));
  EXPECT_TRUE(says(one.unsaid, "scheduler.params.cycle_max_lr"));
  EXPECT_TRUE(says(one.unsaid, "give --ranks N"));
  const ConvertedConfig hpz =
      write_accelerate(read_deepspeed_words(kRoot + "deepspeed/z3_hierarchical_quantized.json", 8));
  EXPECT_TRUE(says(hpz.unsaid, "zero_hpz_partition_size = "));
}

TEST(ConfigConvert, WhatDeepSpeedCannotSayIsListed) {
  const SaidWords hybrid = read_accelerate_words(kRoot + "accelerate/fsdp1_hybrid.yaml");
  EXPECT_NE(write_deepspeed(hybrid).text.find("\"mics_shard_size\": 8"), std::string::npos);
  EXPECT_TRUE(says(hybrid.unsaid, "fsdp_forward_prefetch = true: "));
  const SaidWords ignored = read_accelerate_words(kRoot + "accelerate/fsdp2_hybrid_word_ignored.yaml");
  EXPECT_EQ(ignored.words.shard_group, 0);
  EXPECT_TRUE(says(ignored.unsaid, "no effect with fsdp_version 2; parallelism_config_dp_replicate_size"));
  const SaidWords context = read_accelerate_words(kRoot + "accelerate/fsdp2_context_parallel.yaml");
  EXPECT_TRUE(says(context.unsaid, "parallelism_config_cp_size = 4"));
}

TEST(ConfigConvert, GroupsOfReplicasAreAcceleratesParallelismConfig) {
  const AsFile json_file(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4}, "bf16": {"enabled": true}})",
                         ".json");
  const ConvertedConfig yaml = write_accelerate(read_deepspeed_words(json_file.path(), 16));
  EXPECT_NE(yaml.text.find("parallelism_config_dp_replicate_size: 4\n  parallelism_config_dp_shard_size: 4\n"),
            std::string::npos)
      << yaml.text;
  EXPECT_TRUE(yaml.unsaid.empty()) << join(yaml.unsaid, "\n");
}

TEST(ConfigConvert, MistakesAreRefusedWithTheirPlaceAndWhatWasMeant) {
  int seen = 0;
  const json all = expected();
  for (const auto& [path, record] : all["invalid"].items()) {
    if (record["format"] != "accelerate" || record["want"]["level"] != "error") continue;
    ++seen;
    const std::string text = problems_of(kRoot + path);
    const json& want = record["want"];
    EXPECT_NE(text.find(concat(":", want["line"].get<int>(), ":", want["column"].get<int>(), ":")), std::string::npos)
        << path << ": " << text;
    for (const char* key : {"key", "suggest"}) {
      if (want.contains(key)) {
        EXPECT_NE(text.find(want[key].get<std::string>()), std::string::npos) << path << ": " << text;
      }
    }
  }
  EXPECT_EQ(seen, 4);
  const SaidWords bare = read_accelerate_words(kRoot + "invalid/accelerate_bare_no.yaml");
  EXPECT_EQ(bare.words.precision, "fp32");
  ASSERT_EQ(bare.warnings.size(), 1u);
  EXPECT_NE(bare.warnings[0].text().find("'no'"), std::string::npos);
  EXPECT_EQ(bare.warnings[0].line, 3);
  EXPECT_NE(problems_of(kRoot + "accelerate/ds_from_file.yaml").find("convert that file"), std::string::npos);
}

}  // namespace
}  // namespace intarsia::config
