// Every training curve of the fixtures, in every layout, within the tolerances of tests/fixtures/hf/README.md.
#include "fixture_case.h"

namespace intarsia::parity {
namespace {

class Curves : public testing::TestWithParam<Layout> {};

void expect_reference(const Layout& layout, const Curve& curve) {
  const nlohmann::json reference = read_json(fixture(layout.model + "/curves.json"))["curves"][layout.variant];
  ASSERT_EQ(curve.steps.size(), 20U);
  for (std::size_t step = 0; step < 20; ++step) {
    const double loss = reference["loss"][step], norm = reference["grad_norm"][step];
    EXPECT_NEAR(curve.steps[step].loss, loss, loss * (step < 5 ? 1e-5 : 5e-5)) << "step " << step;
    EXPECT_NEAR(curve.steps[step].grad_norm, norm, norm * (step < 5 ? 1e-4 : 1e-3)) << "step " << step;
    EXPECT_EQ(curve.steps[step].tokens, reference["tokens"][step].get<std::int64_t>()) << "step " << step;
    EXPECT_NEAR(curve.steps[step].lr, reference["lr"][step].get<double>(), 1e-12) << "step " << step;
  }
}

// Every element within lr / 5, and 99.9 % of them within lr / 100.
void expect_final_weights(const Layout& layout, const Curve& curve, const plan::ModelSpec& spec) {
  const double lr = read_json(fixture(layout.model + "/curves.json"))["curves"]["plain"]["lr"][0];
  const auto file = formats::SafetensorsFile::open(fixture(layout.model + "/final_plain.safetensors"));
  std::int64_t far = 0, all = 0;
  for (std::size_t i = 0; i < spec.params.size(); ++i) {
    at::Tensor difference = (curve.weights[i] - read_tensor(file, spec.params[i].name)).abs();
    if (spec.params[i].name.ends_with("attn.c_attn.bias")) {  // the keys' third: its gradient is rounding only
      const std::int64_t third = difference.numel() / 3;
      difference = at::cat({difference.narrow(0, 0, third), difference.narrow(0, 2 * third, third)});
    }
    EXPECT_LT(difference.max().item<double>(), lr / 5) << spec.params[i].name;
    far += difference.gt(lr / 100).sum().item<std::int64_t>();
    all += difference.numel();
  }
  EXPECT_LT(static_cast<double>(far), 0.001 * static_cast<double>(all));
}

TEST_P(Curves, EqualTheReference) {
  const Layout& layout = GetParam();
  const Curve curve = run_layout(layout);
  expect_reference(layout, curve);
  if (layout.variant == "plain") expect_final_weights(layout, curve, make_job(layout).plan.model);
}

// Covers every pair of (model, variant), (stage, ranks), (stage, variant), (mapped or copied, stage).
const std::vector<Layout> kFast = {
    {"llama-gqa", "plain", 1, 0},
    {"llama-gqa", "nodecay1d", 2, 1},
    {"llama-gqa", "clip", 4, 2},
    {"llama-gqa", "accumulate", 2, 3},
    {"llama-gqa", "warmup_cosine", 1, 3},
    {"llama-gqa", "all", 4, 3, true},
    {"llama-tied", "plain", 3, 3},
    {"llama-tied", "nodecay1d", 4, 0},
    {"llama-tied", "clip", 2, 0},
    {"llama-tied", "accumulate", 3, 2, true},
    {"llama-tied", "warmup_cosine", 4, 1},
    {"llama-tied", "all", 2, 3, true, true},
    {"llama-bf16", "plain", 2, 2},
    {"llama-bf16", "nodecay1d", 3, 3, true},
    {"llama-bf16", "clip", 3, 1},
    {"llama-bf16", "accumulate", 4, 1},
    {"llama-bf16", "warmup_cosine", 2, 3},
    {"llama-bf16", "all", 3, 0},
    {"mistral-window", "plain", 2, 3, true},
    {"mistral-window", "nodecay1d", 1, 0},
    {"mistral-window", "clip", 4, 2},
    {"mistral-window", "accumulate", 2, 1, false, true},
    {"mistral-window", "warmup_cosine", 2, 0},
    {"mistral-window", "all", 4, 3},
    {"qwen2-tied", "plain", 2, 2},
    {"qwen2-tied", "nodecay1d", 2, 3},
    {"qwen2-tied", "clip", 1, 0},
    {"qwen2-tied", "accumulate", 4, 3, true},
    {"qwen2-tied", "warmup_cosine", 2, 1},
    {"qwen2-tied", "all", 2, 0, false, true},
    {"qwen3", "plain", 1, 0},
    {"qwen3", "nodecay1d", 2, 2},
    {"qwen3", "clip", 2, 3, true},
    {"qwen3", "accumulate", 2, 1},
    {"qwen3", "warmup_cosine", 4, 3},
    {"qwen3", "all", 2, 2, false, true},
    {"gpt2", "plain", 2, 3},
    {"gpt2", "nodecay1d", 4, 1},
    {"gpt2", "clip", 2, 2, false, true},
    {"gpt2", "accumulate", 1, 0},
    {"gpt2", "warmup_cosine", 2, 3, true},
    {"gpt2", "all", 4, 2},
};
INSTANTIATE_TEST_SUITE_P(Pairwise, Curves, testing::ValuesIn(kFast));

std::vector<Layout> every_layout() {
  std::vector<Layout> layouts;
  for (const char* model : {"llama-gqa", "llama-tied", "llama-bf16", "mistral-window", "qwen2-tied", "qwen3", "gpt2"})
    for (const char* variant : {"plain", "nodecay1d", "clip", "accumulate", "warmup_cosine", "all"})
      for (int ranks = 1; ranks <= 4; ++ranks) {
        const bool twelve = std::string(model) == "llama-tied" || std::string(model) == "llama-bf16";
        const std::int64_t rows = twelve ? 12 : 8;
        if (rows % ranks != 0) continue;
        for (int stage = 0; stage <= 3; ++stage)
          for (const bool copy : {false, true})
            if (!copy || stage == 3) layouts.push_back({model, variant, ranks, stage, copy});
      }
  return layouts;
}
INSTANTIATE_TEST_SUITE_P(SlowAll, Curves, testing::ValuesIn(every_layout()));

}  // namespace
}  // namespace intarsia::parity
