// A model whose vocabulary is not that of its files: embedding and head get other numbers of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::config {
struct RunConfig;
}

namespace intarsia::plan {

// Rows that a run's embedding and head have: `in_files`, unless run.resize_vocab asks for others. `tokens`: of the
// model's tokenizer, if it has one.
// Errors: kConfig for fewer rows than the tokenizer has tokens, or for as many as a tokenizer has where there is none.
std::int64_t resized_vocab(const config::RunConfig& run, std::int64_t in_files, std::optional<std::int64_t> tokens);

// Tokens of the tokenizer in a model's directory, opened only where the vocabulary follows it; nothing elsewhere.
std::optional<std::int64_t> tokens_of(const std::string& directory, const config::RunConfig& run);

// Gives a model of which some parameters have another number of rows (dim 0) than its files. Rows that the files have
// are as there, the first of them where the model has fewer. Each new row is the mean of all rows of the files, summed
// in double in the order of rows, so that every rank and every piece has the same bits.
// Source: Hewitt, "Initializing new word embeddings for pretrained language models" (2021); transformers 5 by default
// draws new rows around that mean, with 1e-9 of the rows' covariance.
class ResizedWeights final : public WeightSource {
 public:
  // `in_files`: the model that `files` has, with the names of the one that is asked for.
  ResizedWeights(std::unique_ptr<WeightSource> files, const ModelSpec& in_files);

  // Memory: of a parameter with new rows 64 KiB and a row, which stays. The first read of a new row reads the whole
  // parameter.
  void read(const ParamSpec& param, Range range, float* out) const override;

 private:
  const std::vector<float>& mean_row(const ParamSpec& in_files) const;

  std::unique_ptr<WeightSource> files_;
  std::unordered_map<std::string, ParamSpec> in_files_;  // by name
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::vector<float>> means_;  // by name; under mutex_
};

}  // namespace intarsia::plan
