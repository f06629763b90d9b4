#include "intarsia/data/token_stream.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "intarsia/base/error.h"

namespace intarsia::data {
namespace {

constexpr std::int64_t kCheckedAtOpen = std::int64_t{1} << 24;

// Samples that are ranges of a stream, each filled up to the common length.
class CutStream : public Dataset {
 public:
  CutStream(TokenStream stream, std::int64_t seq_len, std::int64_t num_samples, DataSummary summary)
      : stream_(std::move(stream)), seq_len_(seq_len), num_samples_(num_samples), summary_(std::move(summary)) {}

  std::int64_t num_samples() const override { return num_samples_; }
  std::int64_t seq_len() const override { return seq_len_; }
  const DataSummary& summary() const override { return summary_; }

  void fill(std::int64_t index, std::int64_t* ids, std::int64_t* labels) const override {
    INTARSIA_INVARIANT(index >= 0 && index < num_samples_, "sample ", index, " of ", num_samples_);
    const std::int64_t begin = index * seq_len_;
    fill_range(stream_, begin, std::min(seq_len_, stream_.size() - begin), seq_len_, ids, labels);
  }

 private:
  TokenStream stream_;
  std::int64_t seq_len_, num_samples_;
  DataSummary summary_;
};

}  // namespace

void fill_range(const TokenStream& stream, std::int64_t begin, std::int64_t size, std::int64_t seq_len,
                std::int64_t* ids, std::int64_t* labels) {
  const std::span<std::int64_t> tokens(ids, static_cast<std::size_t>(size));
  stream.read(begin, tokens);
  stream.label(begin, tokens, labels);
  std::fill(ids + size, ids + seq_len, stream.blocks().front().end_of_text.value_or(0));
  std::fill(labels + size, labels + seq_len, kNotCounted);
}

std::string name_of(const TokenStream& stream) {
  const auto& blocks = stream.blocks();
  if (blocks.empty()) return "the data";
  return blocks.size() == 1 ? blocks.front().name
                            : concat(blocks.front().name, " and ", blocks.size() - 1, " more files");
}

const formats::DocumentMap* TokenBlock::documents() const {
  if (const auto* memory = std::get_if<TokensInMemory>(&tokens)) return &memory->documents;
  const auto& map = std::get<formats::TokenFile>(tokens).documents();
  return map ? &*map : nullptr;
}

std::int64_t TokenBlock::size() const {
  const auto* file = std::get_if<formats::TokenFile>(&tokens);
  return file != nullptr ? file->size() : static_cast<std::int64_t>(std::get<TokensInMemory>(tokens).ids.size());
}

void TokenBlock::read(std::int64_t begin, std::span<std::int64_t> out) const {
  if (const auto* file = std::get_if<formats::TokenFile>(&tokens)) {
    file->read(begin, out);
  } else {
    const auto first = std::get<TokensInMemory>(tokens).ids.begin() + begin;
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

// Calls visit(block, begin in the block, count, offset from `begin`) for each block that the tokens lie in.
template <typename Visit>
void TokenStream::for_each_part(std::int64_t begin, std::int64_t count, const Visit& visit) const {
  INTARSIA_INVARIANT(begin >= 0 && count >= 0 && count <= size_ - begin, count, " tokens from ", begin, " of ", size_);
  auto block = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin());
  for (std::int64_t done = 0; done < count; ++block) {
    const TokenBlock& source = blocks_[block - 1];
    const std::int64_t at = begin + done - begins_[block - 1];
    const std::int64_t part = std::min(count - done, source.size() - at);
    visit(source, at, part, done);
    done += part;
  }
}

void TokenStream::read(std::int64_t begin, std::span<std::int64_t> out) const {
  for_each_part(begin, static_cast<std::int64_t>(out.size()),
                [&](const TokenBlock& block, std::int64_t at, std::int64_t count, std::int64_t offset) {
                  block.read(at, out.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count)));
                });
}

namespace {

// Calls visit(begin, end) for each part of tokens [begin, end) of a block that is trained on.
template <typename Visit>
void for_each_trained(const TokenBlock& block, std::int64_t begin, std::int64_t end, const Visit& visit) {
  const formats::DocumentMap* map = block.documents();
  if (map == nullptr || !map->trained) return visit(begin, end);
  const auto& runs = *map->trained;
  auto run =
      std::partition_point(runs.begin(), runs.end(), [&](const formats::TokenRange& r) { return r.end <= begin; });
  for (; run != runs.end() && run->begin < end; ++run) visit(std::max(begin, run->begin), std::min(end, run->end));
}

}  // namespace

void TokenStream::label(std::int64_t begin, std::span<const std::int64_t> ids, std::int64_t* labels) const {
  std::fill(labels, labels + ids.size(), kNotCounted);
  for_each_part(begin, static_cast<std::int64_t>(ids.size()),
                [&](const TokenBlock& block, std::int64_t at, std::int64_t count, std::int64_t offset) {
                  for_each_trained(block, at, at + count, [&](std::int64_t from, std::int64_t to) {
                    const std::int64_t first = offset + from - at;
                    std::copy_n(ids.begin() + first, to - from, labels + first);
                  });
                });
}

std::int64_t TokenStream::num_trained(std::int64_t begin, std::int64_t end) const {
  std::int64_t total = 0;
  for_each_part(begin, end - begin, [&](const TokenBlock& block, std::int64_t at, std::int64_t count, std::int64_t) {
    for_each_trained(block, at, at + count, [&](std::int64_t from, std::int64_t to) { total += to - from; });
  });
  return total;
}

bool TokenStream::has_marks() const {
  return std::any_of(blocks_.begin(), blocks_.end(), [](const TokenBlock& block) {
    return block.documents() != nullptr && block.documents()->trained.has_value();
  });
}

std::unique_ptr<Dataset> cut_stream(TokenStream stream, const DataOptions& options, DataSummary summary) {
  const std::int64_t seq_len = options.seq_len, total = stream.size();
  const bool keep_rest = options.tail == Tail::kPad && total % seq_len >= 2;  // one token alone has no target
  const std::int64_t num_samples = total / seq_len + (keep_rest ? 1 : 0);
  INTARSIA_CHECK(kData, num_samples > 0, name_of(stream), ": ", total, " tokens, fewer than one sample of ", seq_len,
                 "; use more data or a smaller --seq-len");
  summary.tokens = std::min(total, num_samples * seq_len);
  summary.dropped_tokens = total - summary.tokens;
  if (stream.has_marks()) summary.trained_tokens = stream.num_trained(0, summary.tokens);
  return std::make_unique<CutStream>(std::move(stream), seq_len, num_samples, std::move(summary));
}

}  // namespace intarsia::data
