// Memory of a rank by the meter, against the formulas of docs/memory.md: llama-34m, 4 ranks, every stage.
// Usage: build/bin/memory_bench      prints a Markdown table.
#include <cstdio>

#include "tests/memory/states.h"

int main() {
  using namespace intarsia;
  const formats::HfConfig model = plan::preset("llama-34m").value();
  const double params = static_cast<double>(plan::model_spec(model).numel());
  std::printf("llama-34m: %.1f million parameters, 4 ranks, accumulation 1; bytes of the largest rank\n\n",
              params / 1e6);
  std::printf("| dtype | stage | parameters | formula MB | measured MB | ratio | buffers MB | two units MB |\n");
  std::printf("|---|---|---|--:|--:|--:|--:|--:|\n");
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (int stage = 0; stage <= 3; ++stage)
      for (const bool copy : {false, true}) {
        if (copy && stage != 3) continue;
        const memory::States s = memory::measure(model, dtype, stage, 4, copy);
        std::printf("| %s | %d | %s | %.1f | %.1f | %.4f | %.1f | %.1f |\n", std::string(short_name(dtype)).c_str(),
                    stage,
                    stage < 3 ? "own"
                    : copy    ? "copied"
                              : "mapped",
                    s.formula / 1e6, static_cast<double>(s.measured) / 1e6, static_cast<double>(s.measured) / s.formula,
                    static_cast<double>(s.buffers) / 1e6, static_cast<double>(s.two_units) / 1e6);
        std::fflush(stdout);
      }
  return 0;
}
