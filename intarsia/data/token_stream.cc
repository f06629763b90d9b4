#include "intarsia/data/token_stream.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "intarsia/base/error.h"

namespace intarsia::data {
namespace {

constexpr std::int64_t kCheckedAtOpen = std::int64_t{1} << 24;

std::string name_of(const TokenStream& stream) {
  const auto& blocks = stream.blocks();
  if (blocks.empty()) return "the data";
  return blocks.size() == 1 ? blocks.front().name
                            : concat(blocks.front().name, " and ", blocks.size() - 1, " more files");
}

// Calls visit(id) for each token of the block.
template <typename Visit>
void for_each_token(const TokenBlock& block, const Visit& visit) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min<std::int64_t>(block.size(), 1 << 16)));
  for (std::int64_t begin = 0; begin < block.size(); begin += static_cast<std::int64_t>(ids.size())) {
    ids.resize(
        static_cast<std::size_t>(std::min<std::int64_t>(static_cast<std::int64_t>(ids.size()), block.size() - begin)));
    block.read(begin, ids);
    for (const std::int64_t id : ids) visit(id);
  }
}

// Samples that are ranges of a stream, each filled up to the common length.
class StreamSamples : public Dataset {
 public:
  StreamSamples(TokenStream stream, std::int64_t seq_len, DataSummary summary)
      : stream_(std::move(stream)), seq_len_(seq_len), summary_(summary) {}

  std::int64_t seq_len() const override { return seq_len_; }
  const DataSummary& summary() const override { return summary_; }

  void fill(std::int64_t index, std::int64_t* ids, std::int64_t* labels) const override {
    INTARSIA_INVARIANT(index >= 0 && index < num_samples(), "sample ", index, " of ", num_samples());
    const auto [begin, size] = range_of(index);
    stream_.read(begin, {ids, static_cast<std::size_t>(size)});
    std::copy(ids, ids + size, labels);
    std::fill(ids + size, ids + seq_len_, stream_.blocks().front().end_of_text.value_or(0));
    std::fill(labels + size, labels + seq_len_, kNotCounted);
  }

 protected:
  struct Range {
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };
  virtual Range range_of(std::int64_t index) const = 0;

  TokenStream stream_;
  std::int64_t seq_len_;

 private:
  DataSummary summary_;
};

class CutStream : public StreamSamples {
 public:
  CutStream(TokenStream stream, std::int64_t seq_len, std::int64_t num_samples, DataSummary summary)
      : StreamSamples(std::move(stream), seq_len, summary), num_samples_(num_samples) {}
  std::int64_t num_samples() const override { return num_samples_; }

 protected:
  Range range_of(std::int64_t index) const override {
    const std::int64_t begin = index * seq_len_;
    return {begin, std::min(seq_len_, stream_.size() - begin)};
  }

 private:
  std::int64_t num_samples_;
};

class CutDocuments : public StreamSamples {
 public:
  CutDocuments(TokenStream stream, std::int64_t seq_len, std::vector<std::int64_t> begins,
               std::vector<std::int32_t> sizes, DataSummary summary)
      : StreamSamples(std::move(stream), seq_len, summary), begins_(std::move(begins)), sizes_(std::move(sizes)) {}
  std::int64_t num_samples() const override { return static_cast<std::int64_t>(begins_.size()); }

 protected:
  Range range_of(std::int64_t index) const override {
    const auto i = static_cast<std::size_t>(index);
    return {begins_[i], sizes_[i]};
  }

 private:
  std::vector<std::int64_t> begins_;
  std::vector<std::int32_t> sizes_;
};

}  // namespace

std::int64_t TokenBlock::size() const {
  const auto* file = std::get_if<formats::TokenFile>(&tokens);
  return file != nullptr ? file->size() : static_cast<std::int64_t>(std::get<1>(tokens).size());
}

void TokenBlock::read(std::int64_t begin, std::span<std::int64_t> out) const {
  if (const auto* file = std::get_if<formats::TokenFile>(&tokens)) {
    file->read(begin, out);
  } else {
    const auto first = std::get<1>(tokens).begin() + begin;
    std::copy(first, first + static_cast<std::ptrdiff_t>(out.size()), out.begin());
  }
}

TokenBlock open_block(const std::string& path, std::int64_t vocab_size) {
  auto file = formats::TokenFile::open(path, vocab_size);
  const auto end_of_text = file.info().end_of_text;
  TokenBlock block{path, std::move(file), end_of_text};
  if (block.size() <= kCheckedAtOpen) {
    for_each_token(block, [](std::int64_t) {});  // reading checks
  }
  return block;
}

void TokenStream::add(TokenBlock block) {
  if (block.size() == 0) return;
  begins_.push_back(size_);
  size_ += block.size();
  blocks_.push_back(std::move(block));
}

void TokenStream::read(std::int64_t begin, std::span<std::int64_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  INTARSIA_INVARIANT(begin >= 0 && count <= size_ - begin, count, " tokens from ", begin, " of ", size_);
  auto block = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin());
  while (!out.empty()) {
    const TokenBlock& source = blocks_[block - 1];
    const std::int64_t at = begin - begins_[block - 1];
    const std::size_t part = std::min(out.size(), static_cast<std::size_t>(source.size() - at));
    source.read(at, out.first(part));
    out = out.subspan(part);
    begin += static_cast<std::int64_t>(part);
    ++block;
  }
}

std::unique_ptr<Dataset> cut_stream(TokenStream stream, const DataOptions& options, DataSummary summary) {
  const std::int64_t seq_len = options.seq_len, total = stream.size();
  const bool keep_rest = options.tail == Tail::kPad && total % seq_len >= 2;  // one token alone has no target
  const std::int64_t num_samples = total / seq_len + (keep_rest ? 1 : 0);
  INTARSIA_CHECK(kData, num_samples > 0, name_of(stream), ": ", total, " tokens, fewer than one sample of ", seq_len,
                 "; use more data or a smaller --seq-len");
  summary.tokens = std::min(total, num_samples * seq_len);
  summary.dropped_tokens = total - summary.tokens;
  return std::make_unique<CutStream>(std::move(stream), seq_len, num_samples, summary);
}

std::unique_ptr<Dataset> cut_documents(TokenStream stream, const DataOptions& options, DataSummary summary) {
  std::vector<std::int64_t> begins;
  std::vector<std::int32_t> sizes;
  std::int64_t document = 0, begin = 0, longest = 0, at = 0;
  const auto end_document = [&](std::int64_t end) {
    std::int64_t size = end - begin;
    const std::int64_t first = std::exchange(begin, end);
    if (size < 2) return;
    ++document;
    if (size > options.seq_len) {
      INTARSIA_CHECK(kData, options.too_long != TooLong::kError, name_of(stream), ": document ", document,
                     " (counted from 1) has ", size, " tokens with its end-of-text, more than a sample of ",
                     options.seq_len,
                     "; use a larger --seq-len, --too-long truncate or --too-long drop, or --pack concat");
      if (options.too_long == TooLong::kDrop) {
        ++summary.dropped_documents;
        return;
      }
      ++summary.truncated_documents;
      size = options.seq_len;
    }
    begins.push_back(first);
    sizes.push_back(static_cast<std::int32_t>(size));
    summary.tokens += size;
    longest = std::max(longest, size);
  };
  for (const TokenBlock& block : stream.blocks()) {
    INTARSIA_CHECK(
        kConfig, block.end_of_text.has_value(), "--pack off: ", block.name,
        ": where its documents end is not known; use --pack concat, or make the file with intarsia tokenize");
    for_each_token(block, [&](std::int64_t id) {
      ++at;
      if (id == *block.end_of_text) end_document(at);
    });
    end_document(at);  // no document goes on in the next file
  }
  INTARSIA_CHECK(kData, !begins.empty(), name_of(stream), ": no samples: ", document, " documents, ",
                 summary.dropped_documents, " of them dropped as longer than ", options.seq_len,
                 " tokens; use other data, a larger --seq-len or --too-long truncate");
  summary.documents = document;
  return std::make_unique<CutDocuments>(std::move(stream), longest, std::move(begins), std::move(sizes), summary);
}

}  // namespace intarsia::data
