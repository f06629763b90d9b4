#include "intarsia/data/dataset.h"

#include <span>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/data/data_paths.h"
#include "intarsia/data/sample_files.h"
#include "intarsia/data/token_cache.h"
#include "intarsia/data/token_stream.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::data {
namespace {

void check_packing(const DataOptions& options) {
  INTARSIA_CHECK(kUnsupported, options.pack != Pack::kIsolate,
                 "--pack isolate is not built yet; use --pack concat (documents see what stands before them in the "
                 "sample) or --pack off (one document a sample)");
  INTARSIA_CHECK(kConfig, options.seq_len >= 2, "--seq-len ", options.seq_len,
                 ": a sample needs 2 tokens or more, as one predicts the next");
}

const formats::Tokenizer& tokenizer_of(const DataOptions& options, const DataFiles& files) {
  INTARSIA_CHECK(
      kConfig, options.tokenizer != nullptr, files.paths.front(),
      ": text needs a tokenizer; the model's folder has no tokenizer.json; add one, or give tokens (.bin) or "
      "ready samples (.safetensors)");
  const std::int64_t tokens = options.tokenizer->vocab_size();
  INTARSIA_CHECK(kConfig, options.vocab_size == 0 || tokens <= options.vocab_size, options.tokenizer->name(),
                 ": the tokenizer has a vocabulary of ", tokens, ", larger than the model's embedding of ",
                 options.vocab_size, " rows; use the model's own tokenizer or a model with more rows");
  return *options.tokenizer;
}

TokenBlock tokenize_in_memory(const DataFiles& files, const formats::Tokenizer& tokenizer, DataSummary& summary) {
  std::vector<std::int32_t> tokens;
  summary.documents = tokenize_documents(files.paths, tokenizer, [&](std::span<const std::int32_t> ids) {
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  });
  const std::string name = files.paths.size() == 1
                               ? files.paths.front()
                               : concat(files.paths.front(), " and ", files.paths.size() - 1, " more files");
  return {name, std::move(tokens), tokenizer.end_of_text()};
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
  text += concat(", ", num_samples, num_samples == 1 ? " sample of " : " samples of ", seq_len, " tokens");
  append_count(text, dropped_tokens, "token dropped (shorter than a sample)", "tokens dropped (shorter than a sample)");
  append_count(text, dropped_documents, "document dropped (too long)", "documents dropped (too long)");
  append_count(text, truncated_documents, "document truncated", "documents truncated");
  return text;
}

std::unique_ptr<Dataset> open_dataset(const DataOptions& options) {
  const DataFiles files = find_data_files(options.paths);
  if (files.kind == FileKind::kSamples) return open_sample_files(files.paths, options.vocab_size);
  check_packing(options);
  DataSummary summary{.files = static_cast<std::int64_t>(files.paths.size())};
  TokenStream stream;
  if (files.kind == FileKind::kTokens) {
    for (const std::string& path : files.paths) {
      TokenBlock block = open_block(path, options.vocab_size);
      if (!block.end_of_text && options.tokenizer != nullptr) block.end_of_text = options.tokenizer->end_of_text();
      stream.add(std::move(block));
    }
  } else if (const formats::Tokenizer& tokenizer = tokenizer_of(options, files); options.cache_dir.empty()) {
    stream.add(tokenize_in_memory(files, tokenizer, summary));
  } else {
    stream.add(open_block(tokenize_to_cache(files.paths, tokenizer, options.cache_dir), options.vocab_size));
  }
  return options.pack == Pack::kOff ? cut_documents(std::move(stream), options, summary)
                                    : cut_stream(std::move(stream), options, summary);
}

void prepare_tokens(const DataOptions& options, const TokenizeProgress& progress) {
  if (options.cache_dir.empty()) return;
  const DataFiles files = find_data_files(options.paths);
  if (files.kind != FileKind::kDocuments) return;
  check_packing(options);
  tokenize_to_cache(files.paths, tokenizer_of(options, files), options.cache_dir, progress);
}

}  // namespace intarsia::data
