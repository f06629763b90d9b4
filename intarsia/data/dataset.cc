#include "intarsia/data/dataset.h"

#include <cmath>
#include <numeric>
#include <utility>
#include <variant>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/data/data_paths.h"
#include "intarsia/data/mixture.h"
#include "intarsia/data/permutation.h"
#include "intarsia/data/sample_files.h"
#include "intarsia/data/token_cache.h"
#include "intarsia/data/token_stream.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::data {
namespace {

void check_packing(const DataOptions& options) {
  INTARSIA_CHECK(kConfig, options.seq_len >= 2, "--seq-len ", options.seq_len,
                 ": a sample needs 2 tokens or more, as one predicts the next");
}

void check_tokenizer(const DataOptions& options, const DataFiles& files) {
  INTARSIA_CHECK(
      kConfig, options.tokenizer != nullptr, files.paths.front(),
      ": text needs a tokenizer; the model's folder has no tokenizer.json; add one, or give tokens (.bin) or "
      "ready samples (.safetensors)");
  const std::int64_t tokens = options.tokenizer->vocab_size();
  INTARSIA_CHECK(kConfig, options.vocab_size == 0 || tokens <= options.vocab_size, options.tokenizer->name(),
                 ": the tokenizer has a vocabulary of ", tokens, ", larger than the model's embedding of ",
                 options.vocab_size, " rows; use the model's own tokenizer or a model with more rows");
}

TokenBlock tokenize_in_memory(const DataFiles& files, const DataOptions& options, DataSummary& summary) {
  TokensInMemory tokens;
  const DocumentCounts counts = tokenize_documents(files.paths, options, [&](const formats::MarkedIds& document) {
    tokens.ids.insert(tokens.ids.end(), document.ids.begin(), document.ids.end());
    tokens.documents.add(static_cast<std::int64_t>(document.ids.size()), document.marks);
  });
  summary.documents = counts.documents;
  summary.bad_lines = counts.bad_lines;
  const std::string name = files.paths.size() == 1
                               ? files.paths.front()
                               : concat(files.paths.front(), " and ", files.paths.size() - 1, " more files");
  return {name, std::move(tokens), options.tokenizer->end_of_text()};
}

std::unique_ptr<Dataset> open_source(const DataFiles& files, const DataOptions& options) {
  if (files.kind == FileKind::kSamples) return open_sample_files(files.paths, options.vocab_size);
  check_packing(options);
  DataSummary summary{.files = static_cast<std::int64_t>(files.paths.size())};
  TokenStream stream;
  const auto add_file = [&](const std::string& path) {
    TokenBlock block = open_block(path, options.vocab_size);
    if (!block.end_of_text && options.tokenizer != nullptr) block.end_of_text = options.tokenizer->end_of_text();
    const formats::TokenFileInfo& info = std::get<formats::TokenFile>(block.tokens).info();
    summary.documents += info.num_documents;
    summary.bad_lines += info.num_bad_lines;
    stream.add(std::move(block));
  };
  if (files.kind == FileKind::kTokens) {
    for (const std::string& path : files.paths) add_file(path);
  } else {
    check_tokenizer(options, files);
    if (options.cache_dir.empty()) {
      stream.add(tokenize_in_memory(files, options, summary));
    } else {
      add_file(tokenize_to_cache(files.paths, options));
    }
  }
  return options.pack == Pack::kConcat ? cut_stream(std::move(stream), options, std::move(summary))
                                       : cut_documents(std::move(stream), options, std::move(summary));
}

std::vector<std::int64_t> all_of(const Dataset& dataset) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset.num_samples()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

std::vector<Source> open_sources(const DataOptions& options) {
  std::vector<Source> sources;
  for (const DataFiles& files : find_data_files(options.paths)) {
    Source source{.dataset = open_source(files, options), .indices = {}, .weight = 1, .name = files.given};
    if (files.weight > 0) source.weight = files.weight;
    source.indices = all_of(*source.dataset);
    sources.push_back(std::move(source));
  }
  return sources;
}

void append_count(std::string& text, std::int64_t count, const char* one, const char* many) {
  if (count > 0) text += concat(text.empty() ? "" : ", ", count, " ", count == 1 ? one : many);
}

}  // namespace

std::string DataSummary::describe(std::int64_t num_samples, std::int64_t seq_len) const {
  std::string text;
  append_count(text, files, "file", "files");
  append_count(text, documents, "document", "documents");
  append_count(text, tokens, "token", "tokens");
  if (trained_tokens > 0) text += concat(" (", trained_tokens, " trained on)");
  text += concat(", ", num_samples, num_samples == 1 ? " sample of " : " samples of ", seq_len, " tokens");
  append_count(text, dropped_tokens, "token dropped (shorter than a sample)", "tokens dropped (shorter than a sample)");
  append_count(text, dropped_documents, "document dropped (too long)", "documents dropped (too long)");
  append_count(text, truncated_documents, "document truncated", "documents truncated");
  append_count(text, padding_tokens, "token of padding", "tokens of padding");
  append_count(text, bad_lines, "bad line skipped", "bad lines skipped");
  append_count(text, held_out_samples, "sample held out", "samples held out");
  if (!mixture.empty()) text += "; an epoch has " + mixture;
  return text;
}

void DataSummary::add(const DataSummary& other) {
  // Where only one of two has marks, all tokens of the other are trained on.
  if (trained_tokens > 0 || other.trained_tokens > 0) {
    trained_tokens = (trained_tokens > 0 ? trained_tokens : tokens) +
                     (other.trained_tokens > 0 ? other.trained_tokens : other.tokens);
  }
  files += other.files;
  documents += other.documents;
  tokens += other.tokens;
  padding_tokens += other.padding_tokens;
  dropped_tokens += other.dropped_tokens;
  dropped_documents += other.dropped_documents;
  truncated_documents += other.truncated_documents;
  bad_lines += other.bad_lines;
}

void Dataset::positions(std::int64_t index, std::int64_t* out) const {
  INTARSIA_INVARIANT(index >= 0 && index < num_samples(), "sample ", index, " of ", num_samples());
  std::iota(out, out + seq_len(), 0);
}

std::unique_ptr<Dataset> open_dataset(const DataOptions& options) {
  const std::vector<DataFiles> files = find_data_files(options.paths);
  INTARSIA_CHECK(kUsage, options.tail != Tail::kPad || files.front().weight == 0, files.front().given,
                 ": files to evaluate on have no weights, as each sample counts once; leave out what stands behind the "
                 "colon");
  return files.size() == 1 ? open_source(files.front(), options) : mix(open_sources(options));
}

TrainAndEval open_split(const DataOptions& options, double fraction, std::uint64_t seed) {
  INTARSIA_CHECK(kConfig, fraction > 0 && fraction < 1, "--eval-fraction ", shortest(fraction),
                 ": must be above 0 and below 1");
  std::vector<Source> train = open_sources(options), eval = train;
  std::int64_t num_held = 0;
  // Its own permutation: the order of training must not tell which samples were held out.
  constexpr std::int64_t kSplitEpoch = std::int64_t{1} << 40;
  for (std::size_t i = 0; i < train.size(); ++i) {
    const std::int64_t total = train[i].dataset->num_samples();
    const auto held = static_cast<std::int64_t>(std::llround(static_cast<double>(total) * fraction));
    INTARSIA_CHECK(kData,
                   held > 0 && held<total, "--eval-fraction ", shortest(fraction), " of ", total, " samples holds ",
                                    held, " out", train.size()> 1
                       ? concat(" of ", train[i].name)
                       : "",
                   "; both parts need one or more; use more data or --eval-data");
    num_held += held;
    const Permutation order(seed, kSplitEpoch, total);
    std::vector<bool> is_held(static_cast<std::size_t>(total));
    for (std::int64_t k = 0; k < held; ++k) is_held[static_cast<std::size_t>(order.at(k))] = true;
    std::erase_if(train[i].indices, [&](std::int64_t index) { return is_held[static_cast<std::size_t>(index)]; });
    std::erase_if(eval[i].indices, [&](std::int64_t index) { return !is_held[static_cast<std::size_t>(index)]; });
  }
  return {mix(std::move(train), num_held), join(std::move(eval))};
}

void prepare_tokens(const DataOptions& options, const TokenizeProgress& progress) {
  if (options.cache_dir.empty()) return;
  for (const DataFiles& files : find_data_files(options.paths)) {
    if (files.kind != FileKind::kDocuments) continue;
    check_packing(options);
    check_tokenizer(options, files);
    tokenize_to_cache(files.paths, options, progress);
  }
}

}  // namespace intarsia::data
