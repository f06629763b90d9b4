// Where initial weights come from. Random numbers here; a model's files in directory_weights.h.
#pragma once

#include <cstdint>

#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/unit_layout.h"

namespace intarsia::plan {

// Gives pieces of parameters. A rank asks only for what it owns, so that no rank ever holds the whole model.
// Threads: read() may be called from several threads at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Writes elements [range.begin, range.end) of the parameter, in row-major order and as fp32, to `out`.
  // Errors: kIo, kFormat with the file and the tensor.
  virtual void read(const ParamSpec& param, Range range, float* out) const = 0;
};

// Fills by ParamSpec::init with Philox numbers of (seed, init_key): the same bits on any number of ranks.
class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(std::uint64_t seed) : seed_(seed) {}
  void read(const ParamSpec& param, Range range, float* out) const override;

 private:
  std::uint64_t seed_;
};

}  // namespace intarsia::plan
