#include "intarsia/plan/resized_vocab.h"

#include <algorithm>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/config/train_config.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::plan {

std::optional<std::int64_t> tokens_of(const std::string& directory, const config::RunConfig& run) {
  if (run.resize_vocab != 0 || directory.empty()) return std::nullopt;
  if (!std::filesystem::exists(std::filesystem::path(directory) / "tokenizer.json")) return std::nullopt;
  return formats::Tokenizer::load(directory).vocab_size();
}

std::int64_t resized_vocab(const config::RunConfig& run, std::int64_t in_files, std::optional<std::int64_t> tokens) {
  if (!run.resize_vocab) return in_files;
  INTARSIA_CHECK(kConfig, *run.resize_vocab > 0 || tokens.has_value(),
                 "--resize-vocab tokenizer: there is no tokenizer.json beside the model; put the tokenizer there, or "
                 "give the number of rows");
  const std::int64_t asked = *run.resize_vocab > 0 ? *run.resize_vocab : *tokens;
  const std::int64_t multiple = run.resize_vocab_multiple;
  const std::int64_t rows = (asked + multiple - 1) / multiple * multiple;
  INTARSIA_CHECK(kConfig, rows >= tokens.value_or(0), "--resize-vocab ", rows, ": the tokenizer has ", *tokens,
                 " tokens; give ", *tokens, " or more, or --resize-vocab tokenizer");
  return rows;
}

ResizedWeights::ResizedWeights(std::unique_ptr<WeightSource> files, const ModelSpec& in_files)
    : files_(std::move(files)) {
  for (const ParamSpec& param : in_files.params) in_files_.emplace(param.name, param);
}

void ResizedWeights::read(const ParamSpec& param, Range range, float* out) const {
  const auto found = in_files_.find(param.name);
  INTARSIA_INVARIANT(found != in_files_.end(), "no parameter ", param.name, " in the model's files");
  const ParamSpec& stored = found->second;
  const std::int64_t end = std::min(range.end, stored.numel());
  if (range.begin < end) files_->read(stored, {range.begin, end}, out);
  if (range.end <= stored.numel()) return;
  const std::vector<float>& mean = mean_row(stored);
  const auto width = static_cast<std::int64_t>(mean.size());
  for (std::int64_t i = std::max(range.begin, stored.numel()); i < range.end; ++i)
    out[i - range.begin] = mean[static_cast<std::size_t>(i % width)];
}

const std::vector<float>& ResizedWeights::mean_row(const ParamSpec& in_files) const {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = means_.try_emplace(in_files.name);
  if (!is_new) return entry->second;
  INTARSIA_INVARIANT(in_files.shape.size() == 2 && in_files.shape[0] > 0, in_files.name, " has no rows to go by");
  const std::int64_t rows = in_files.shape[0], width = in_files.shape[1];
  const std::int64_t at_once = std::clamp<std::int64_t>((64 << 10) / (4 * width), 1, rows);
  std::vector<double> sums(static_cast<std::size_t>(width));
  std::vector<float> values(static_cast<std::size_t>(at_once * width));
  for (std::int64_t row = 0; row < rows; row += at_once) {
    const std::int64_t end = std::min(rows, row + at_once);
    files_->read(in_files, {row * width, end * width}, values.data());
    for (std::int64_t i = 0; i < (end - row) * width; ++i)
      sums[static_cast<std::size_t>(i % width)] += static_cast<double>(values[static_cast<std::size_t>(i)]);
  }
  for (const double sum : sums) entry->second.push_back(static_cast<float>(sum / static_cast<double>(rows)));
  return entry->second;
}

}  // namespace intarsia::plan
