#include <gtest/gtest.h>

#include "measure.h"

namespace intarsia::plan_measured {
namespace {

formats::HfConfig model_of(std::int64_t hidden, std::int64_t ffn, std::int64_t layers, std::int64_t heads,
                           std::int64_t kv_heads, std::int64_t vocab, bool tied = false) {
  formats::HfConfig model = plan::preset("llama-34m").value();
  model.hidden_size = hidden;
  model.intermediate_size = ffn;
  model.num_hidden_layers = layers;
  model.num_attention_heads = heads;
  model.num_key_value_heads = kv_heads;
  model.head_dim = hidden / heads;
  model.vocab_size = vocab;
  model.tie_word_embeddings = tied;
  return model;
}

void expect_peak(const Case& c) {
  const Measured measured = measure(c);
  const auto predicted = static_cast<double>(measured.replay.peak.total);
  const auto seen = static_cast<double>(measured.reading.total_peak);
  EXPECT_NEAR(predicted / seen, 1, 0.03) << short_name(c.dtype) << " stage " << c.stage << " ranks " << c.ranks
                                         << (c.copy ? " copied" : "") << " recompute " << static_cast<int>(c.recompute)
                                         << ": predicted " << predicted << ", measured " << seen << ", at "
                                         << measured.replay.peak.label;
}

// Activations of blocks decide.
const Case kDeep{.model = model_of(128, 352, 6, 4, 4, 256), .batch = 4, .length = 128};
// Logits decide.
const Case kWide{.model = model_of(128, 352, 2, 4, 4, 8192), .batch = 2, .length = 128};
// States decide.
const Case kStates{.model = model_of(256, 704, 4, 4, 4, 2048), .batch = 1, .length = 16};

void expect_peaks(Case c) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto recompute : {config::Recompute::kNone, config::Recompute::kFull}) {
      c.dtype = dtype;
      c.recompute = recompute;
      expect_peak(c);
    }
}

TEST(MeasuredPeak, IsPredictedWhereActivationsDecide) { expect_peaks(kDeep); }
TEST(MeasuredPeak, IsPredictedWhereLogitsDecide) { expect_peaks(kWide); }

TEST(MeasuredPeak, IsPredictedForEveryRecomputation) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Case c = kDeep;
    c.dtype = dtype;
    c.recompute = config::Recompute::kSelective;
    expect_peak(c);
    c.recompute = config::Recompute::kEveryK;
    expect_peak(c);
    c.recompute = config::Recompute::kFull;
    c.checkpoints = 3;
    expect_peak(c);
  }
}

TEST(MeasuredPeak, IsPredictedInEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    Case c = kStates;
    c.stage = stage;
    c.ranks = 2;
    expect_peak(c);
  }
}

TEST(MeasuredPeak, IsPredictedWhenParametersAreCopied) {
  Case c = kStates;
  c.stage = 3;
  c.ranks = 2;
  c.copy = true;
  expect_peak(c);
  c.dtype = DType::kBF16;
  expect_peak(c);
}

TEST(MeasuredPeak, IsPredictedWhenUnitsAreGatheredAhead) {
  for (const bool tied : {false, true})
    for (const int stage : {2, 3}) {
      Case c = kStates;
      c.model.tie_word_embeddings = tied;
      c.stage = stage;
      c.ranks = 2;
      c.copy = c.overlap = true;
      expect_peak(c);
    }
}

TEST(MeasuredPeak, IsPredictedForGroupedHeads) {
  Case c = kDeep;
  c.model = model_of(128, 352, 6, 4, 2, 256);
  expect_peak(c);
}

TEST(MeasuredPeak, IsPredictedForTiedEmbeddings) {
  Case c = kStates;
  c.model.tie_word_embeddings = true;
  c.stage = 2;
  c.ranks = 2;
  expect_peak(c);
}

TEST(MeasuredPeak, IsPredictedForTheOtherFamilies) {
  Case c = kDeep;
  c.model = model_of(128, 352, 6, 4, 2, 256);
  formats::HfConfig qwen2 = c.model, qwen3 = c.model, mistral = c.model;
  qwen2.qkv_bias = true;
  qwen3.qk_norm = true;
  mistral.sliding_window = 48;
  mistral.windowed_layers.assign(6, true);
  for (const formats::HfConfig& model : {qwen2, qwen3, mistral}) {
    c.model = model;
    expect_peaks(c);
  }
}

formats::HfConfig gpt2_of(std::int64_t hidden, std::int64_t layers, std::int64_t vocab) {
  formats::HfConfig model = model_of(hidden, 4 * hidden, layers, 4, 4, vocab, true);
  model.model_type = "gpt2";
  model.max_position_embeddings = 160;
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  return model;
}

TEST(MeasuredPeak, IsPredictedForGpt2) {
  Case c = kDeep;
  c.model = gpt2_of(128, 6, 256);
  expect_peaks(c);
  c = kWide;
  c.model = gpt2_of(128, 2, 8192);
  expect_peaks(c);
  c = kStates;
  c.model = gpt2_of(256, 4, 2048);
  c.ranks = 2;
  for (const int stage : {2, 3}) {
    c.stage = stage;
    expect_peak(c);
  }
}

TEST(MeasuredPeak, IsPredictedForIsolatedDocuments) {
  Case c = kDeep;
  c.isolated = true;
  expect_peaks(c);
  c.model = gpt2_of(128, 6, 256);
  expect_peaks(c);
}

TEST(MeasuredPeak, IsPredictedForAdapters) {
  Case c = kDeep;
  c.lora = {
      .r = 8, .alpha = 16, .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}};
  expect_peaks(c);
  c.recompute = config::Recompute::kSelective;
  expect_peak(c);
  c.recompute = config::Recompute::kNone;
  c.lora = {.r = 4, .alpha = 4, .targets = {}};
  expect_peaks(c);
  c.model = gpt2_of(128, 6, 256);
  expect_peaks(c);
}

TEST(MeasuredPeak, IsPredictedForAdaptersWithDropout) {
  Case c = kDeep;
  c.lora = {.r = 8, .alpha = 16, .dropout = 0.1, .targets = {"q_proj", "k_proj", "v_proj", "up_proj", "down_proj"}};
  expect_peaks(c);
  c.model = gpt2_of(128, 6, 256);
  c.lora.targets = {"c_attn", "c_fc"};
  expect_peaks(c);
}

TEST(MeasuredPeak, IsPredictedForAdaptersWhereStatesDecide) {
  Case c = kStates;
  c.lora = {.r = 8, .alpha = 16, .targets = {"q_proj", "down_proj"}};
  c.model.tie_word_embeddings = true;
  c.dtype = DType::kBF16;
  c.ranks = 2;
  for (const int stage : {0, 1, 2, 3}) {
    c.stage = stage;
    expect_peak(c);
  }
  c.copy = true;
  expect_peak(c);
}

// Groups of ranks hold copies of each other; hpZ keeps the parameters near and spreads the rest.
TEST(MeasuredPeak, IsPredictedForGroupsOfRanks) {
  for (const auto& [group, hpz] : {std::pair{2, 0}, std::pair{0, 2}})
    for (const bool copy : {false, true}) {
      Case c = kStates;
      c.stage = 3;
      c.ranks = 4;
      c.group = group;
      c.hpz = hpz;
      c.copy = copy;
      c.dtype = DType::kBF16;
      expect_peak(c);
    }
}

TEST(MeasuredPeak, IsPredictedWhenGatheredParametersStay) {
  Case c = kStates;
  c.stage = 3;
  c.ranks = 2;
  c.copy = c.keep_gathered = true;
  expect_peak(c);
}

TEST(MeasuredPeak, IsPredictedForReductionsInSixteenBits) {
  for (const int stage : {1, 2}) {
    Case c = kStates;
    c.stage = stage;
    c.ranks = 2;
    c.reduced_as = "bf16";
    expect_peak(c);
  }
}

// One sample of 16 tokens: the matrices that are brought together are larger than the activations.
TEST(MeasuredPeak, IsPredictedForOptimizersThatNeedWholeMatrices) {
  for (const char* optimizer : {"muon", "adafactor", "lamb", "lion", "sgd"})
    for (const auto& [stage, ranks, group, hpz] :
         {std::array{0, 1, 0, 0}, {1, 2, 0, 0}, {3, 2, 0, 0}, {3, 4, 2, 0}, {3, 4, 0, 2}}) {
      Case c = kStates;
      c.model.num_hidden_layers = 2;
      c.optimizer = optimizer;
      c.stage = stage;
      c.ranks = ranks;
      c.group = group;
      c.hpz = hpz;
      SCOPED_TRACE(concat(optimizer, ", shard groups ", group, ", hpZ ", hpz));
      expect_peak(c);
    }
}

struct Way {
  const char* name;
  bool copy, overlap, no_sync;
};

TEST(MeasuredCollectives, AreThoseOfThePlan) {
  for (const int stage : {0, 1, 2, 3})
    for (const Way& way : {Way{"mapped", false, false, false}, Way{"copied", true, false, false},
                           Way{"ahead", true, true, false}, Way{"no_sync", true, true, true}}) {
      Case c = kStates;
      c.stage = stage;
      c.ranks = 2;
      c.copy = way.copy;
      c.overlap = way.overlap;
      c.no_sync = way.no_sync;
      c.accumulation = 2;
      const Measured measured = measure(c);
      std::vector<std::string> planned, seen;
      for (const plan::Action& action : measured.replay.actions)
        if (action.kind == plan::ActionKind::kAllGather || action.kind == plan::ActionKind::kReduceScatter)
          planned.push_back(concat(plan::action_name(action.kind), " ", action.bytes));
      for (const comm::OpRecord& record : measured.collectives)
        if (record.phase != "step totals" && record.phase != "gradient norm" && record.op != comm::Op::kBarrier)
          seen.push_back(concat(comm::op_name(record.op), " ", record.bytes));
      EXPECT_EQ(planned, seen) << "stage " << stage << " " << way.name;
    }
}

TEST(MeasuredCollectives, OfGroupsAreThoseOfThePlan) {
  for (const int stage : {1, 2, 3})
    for (const auto& [group, hpz] : {std::pair{2, 0}, std::pair{0, 2}})
      for (const bool no_sync : {false, true}) {
        if (hpz > 0 && (stage != 3 || no_sync)) continue;
        Case c = kStates;
        c.stage = stage;
        c.ranks = 4;
        c.group = group;
        c.hpz = hpz;
        c.no_sync = no_sync;
        c.copy = true;
        c.accumulation = 2;
        const Measured measured = measure(c);
        const auto planned = [&](plan::ActionAxis axis) {
          std::vector<std::string> lines;
          for (const plan::Action& action : measured.replay.actions)
            if (action.axis == axis &&
                (action.kind == plan::ActionKind::kAllGather || action.kind == plan::ActionKind::kReduceScatter))
              lines.push_back(concat(plan::action_name(action.kind), " ", action.bytes));
          return lines;
        };
        const auto seen = [](const std::vector<comm::OpRecord>& records) {
          std::vector<std::string> lines;
          for (const comm::OpRecord& record : records)
            if (record.op != comm::Op::kBarrier) lines.push_back(concat(comm::op_name(record.op), " ", record.bytes));
          return lines;
        };
        EXPECT_EQ(planned(plan::ActionAxis::kShard), seen(measured.collectives)) << "stage " << stage << " hpz " << hpz;
        EXPECT_EQ(planned(plan::ActionAxis::kReplicate), seen(measured.columns)) << "stage " << stage << " hpz " << hpz;
      }
}

}  // namespace
}  // namespace intarsia::plan_measured
