#include "intarsia/data/token_stream.h"

#include <algorithm>
#include <cstring>
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

// Samples that are ranges of a stream, each filled up to the common length.
class StreamSamples : public Dataset {
 public:
  StreamSamples(TokenStream stream, std::int64_t seq_len, std::int64_t pad, DataSummary summary)
      : stream_(std::move(stream)), seq_len_(seq_len), pad_(pad), summary_(summary) {}

  std::int64_t seq_len() const override { return seq_len_; }
  const DataSummary& summary() const override { return summary_; }

  void fill(std::int64_t index, std::int64_t* ids, std::int64_t* labels) const override {
    INTARSIA_INVARIANT(index >= 0 && index < num_samples(), "sample ", index, " of ", num_samples());
    const auto [begin, size] = range_of(index);
    stream_.copy(begin, size, ids);
    std::copy(ids, ids + size, labels);
    std::fill(ids + size, ids + seq_len_, pad_);
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
  std::int64_t pad_;
  DataSummary summary_;
};

class CutStream : public StreamSamples {
 public:
  CutStream(TokenStream stream, std::int64_t seq_len, std::int64_t pad, std::int64_t num_samples, DataSummary summary)
      : StreamSamples(std::move(stream), seq_len, pad, summary), num_samples_(num_samples) {}
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
  CutDocuments(TokenStream stream, std::int64_t seq_len, std::int64_t pad, std::vector<std::int64_t> begins,
               std::vector<std::int32_t> sizes, DataSummary summary)
      : StreamSamples(std::move(stream), seq_len, pad, summary), begins_(std::move(begins)), sizes_(std::move(sizes)) {}
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

std::int64_t TokenBlock::at(std::int64_t i) const {
  if (token_bytes == 2) {
    std::uint16_t value = 0;
    std::memcpy(&value, data + i * 2, sizeof value);
    return value;
  }
  std::uint32_t value = 0;
  std::memcpy(&value, data + i * 4, sizeof value);
  return value;
}

TokenBlock block_of(std::string name, std::vector<std::int32_t> tokens) {
  const auto owner = std::make_shared<const std::vector<std::int32_t>>(std::move(tokens));
  return {std::move(name), owner, reinterpret_cast<const std::byte*>(owner->data()), 4,
          static_cast<std::int64_t>(owner->size())};
}

void TokenStream::check(const TokenBlock& block, std::int64_t position, std::int64_t id) const {
  INTARSIA_CHECK(kData, vocab_size_ == 0 || id < vocab_size_, block.name, ": token ", position, " (counted from 0) is ",
                 id, "; the model has a vocabulary of ", vocab_size_, ", allowed are 0 to ", vocab_size_ - 1,
                 "; the file was made with another tokenizer");
}

void TokenStream::add(TokenBlock block) {
  if (block.size == 0) return;
  if (block.size <= kCheckedAtOpen) {
    for (std::int64_t i = 0; i < block.size; ++i) check(block, i, block.at(i));
  }
  begins_.push_back(size_);
  size_ += block.size;
  blocks_.push_back(std::move(block));
}

void TokenStream::copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
  INTARSIA_INVARIANT(begin >= 0 && count >= 0 && count <= size_ - begin, "tokens from ", begin, ", ", count, " of ",
                     size_);
  if (count == 0) return;
  auto block = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin() - 1);
  std::int64_t at = begin - begins_[block];
  for (std::int64_t i = 0; i < count; ++i, ++at) {
    while (at == blocks_[block].size) {
      ++block;
      at = 0;
    }
    out[i] = blocks_[block].at(at);
    check(blocks_[block], at, out[i]);
  }
}

std::unique_ptr<Dataset> cut_stream(TokenStream stream, const DataOptions& options, std::int64_t pad,
                                    DataSummary summary) {
  const std::int64_t seq_len = options.seq_len, total = stream.size();
  const bool keep_rest = options.tail == Tail::kPad && total % seq_len >= 2;  // one token alone has no target
  const std::int64_t num_samples = total / seq_len + (keep_rest ? 1 : 0);
  INTARSIA_CHECK(kData, num_samples > 0, name_of(stream), ": ", total, " tokens, fewer than one sample of ", seq_len,
                 "; use more data or a smaller --seq-len");
  summary.tokens = std::min(total, num_samples * seq_len);
  summary.dropped_tokens = total - summary.tokens;
  return std::make_unique<CutStream>(std::move(stream), seq_len, pad, num_samples, summary);
}

std::unique_ptr<Dataset> cut_documents(TokenStream stream, const DataOptions& options, std::int64_t end_of_text,
                                       DataSummary summary) {
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
    for (std::int64_t i = 0; i < block.size; ++i, ++at) {
      if (block.at(i) == end_of_text) end_document(at + 1);
    }
    end_document(at);  // no document goes on in the next file
  }
  INTARSIA_CHECK(kData, !begins.empty(), name_of(stream), ": no samples: ", document, " documents, ",
                 summary.dropped_documents, " of them dropped as longer than ", options.seq_len,
                 " tokens; use other data, a larger --seq-len or --too-long truncate");
  summary.documents = document;
  return std::make_unique<CutDocuments>(std::move(stream), longest, end_of_text, std::move(begins), std::move(sizes),
                                        summary);
}

}  // namespace intarsia::data
