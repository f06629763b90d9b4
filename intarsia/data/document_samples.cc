// Samples that are whole documents: one each, or as many as fit.
#include <algorithm>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/data/token_stream.h"

namespace intarsia::data {
namespace {

// Tokens [begin, begin + size) of the stream, which are one document or, with Pack::kIsolate, several.
struct Piece {
  std::int64_t begin = 0;
  std::int32_t size = 0;
};

class DocumentSamples : public Dataset {
 public:
  // `document_begins`: of Pack::kIsolate, ascending, of all documents in samples.
  DocumentSamples(TokenStream stream, std::int64_t seq_len, std::vector<Piece> samples,
                  std::vector<std::int64_t> document_begins, DataSummary summary)
      : stream_(std::move(stream)),
        seq_len_(seq_len),
        samples_(std::move(samples)),
        document_begins_(std::move(document_begins)),
        summary_(std::move(summary)) {}

  std::int64_t num_samples() const override { return static_cast<std::int64_t>(samples_.size()); }
  std::int64_t seq_len() const override { return seq_len_; }
  const DataSummary& summary() const override { return summary_; }
  bool is_isolated() const override { return !document_begins_.empty(); }

  void fill(std::int64_t index, std::int64_t* ids, std::int64_t* labels) const override {
    const Piece& piece = piece_of(index);
    fill_range(stream_, piece.begin, piece.size, seq_len_, ids, labels);
    // The document before must not be asked for the first token of the next.
    for_each_document(piece, [&](std::int64_t at) { labels[at] = kNotCounted; });
  }

  void positions(std::int64_t index, std::int64_t* out) const override {
    if (!is_isolated()) return Dataset::positions(index, out);
    const Piece& piece = piece_of(index);
    std::fill(out, out + seq_len_, 0);
    for_each_document(piece, [&](std::int64_t at) { out[at] = 1; });
    if (piece.size < seq_len_) out[piece.size] = 1;  // what fills up is a document of its own
    for (std::int64_t i = 0, begin = 0; i < seq_len_; ++i) {
      if (out[i] == 1) begin = i;
      out[i] = i - begin;
    }
  }

 private:
  const Piece& piece_of(std::int64_t index) const {
    INTARSIA_INVARIANT(index >= 0 && index < num_samples(), "sample ", index, " of ", num_samples());
    return samples_[static_cast<std::size_t>(index)];
  }

  // Calls visit(place in the sample) for the begin of each document but a first one at 0.
  template <typename Visit>
  void for_each_document(const Piece& piece, const Visit& visit) const {
    auto begin = std::upper_bound(document_begins_.begin(), document_begins_.end(), piece.begin);
    for (; begin != document_begins_.end() && *begin < piece.begin + piece.size; ++begin) visit(*begin - piece.begin);
  }

  TokenStream stream_;
  std::int64_t seq_len_;
  std::vector<Piece> samples_;
  std::vector<std::int64_t> document_begins_;
  DataSummary summary_;
};

// Calls visit(begin, end) for each document of the stream.
template <typename Visit>
void for_each_document(const TokenStream& stream, const char* pack, const Visit& visit) {
  std::int64_t block_begin = 0;
  for (const TokenBlock& block : stream.blocks()) {
    std::int64_t begin = 0;
    const auto end_document = [&](std::int64_t end) {
      if (end > begin) visit(block_begin + begin, block_begin + end);
      begin = end;
    };
    if (const formats::DocumentMap* map = block.documents()) {
      for (const std::int64_t end : map->ends) end_document(end);
    } else {
      INTARSIA_CHECK(
          kConfig, block.end_of_text.has_value(), "--pack ", pack, ": ", block.name,
          ": where its documents end is not known; use --pack concat, or make the file with intarsia tokenize");
      std::int64_t at = 0;
      for_each_token(block, [&](std::int64_t id) {
        ++at;
        if (id == *block.end_of_text) end_document(at);
      });
    }
    end_document(block.size());  // no document goes on in the next file
    block_begin += block.size();
  }
}

}  // namespace

std::unique_ptr<Dataset> cut_documents(TokenStream stream, const DataOptions& options, DataSummary summary) {
  const bool isolate = options.pack == Pack::kIsolate;
  std::vector<Piece> samples;
  std::vector<std::int64_t> begins;
  std::int64_t documents = 0, longest = 0;
  const bool has_marks = stream.has_marks();
  for_each_document(stream, isolate ? "isolate" : "off", [&](std::int64_t begin, std::int64_t end) {
    std::int64_t size = end - begin;
    if (size < 2) return;  // one token has no target
    ++documents;
    if (size > options.seq_len) {
      INTARSIA_CHECK(kData, options.too_long != TooLong::kError, name_of(stream), ": document ", documents,
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
    summary.tokens += size;
    if (has_marks) summary.trained_tokens += stream.num_trained(begin, begin + size);
    if (isolate) begins.push_back(begin);
    Piece* last = samples.empty() ? nullptr : &samples.back();
    // A document joins the sample before it when the two are neighbours and fit.
    if (isolate && last != nullptr && last->begin + last->size == begin && last->size + size <= options.seq_len) {
      last->size += static_cast<std::int32_t>(size);
    } else {
      samples.push_back({begin, static_cast<std::int32_t>(size)});
    }
    longest = std::max<std::int64_t>(longest, samples.back().size);
  });
  INTARSIA_CHECK(kData, !samples.empty(), name_of(stream), ": no samples: ", documents, " documents, ",
                 summary.dropped_documents, " of them dropped as longer than ", options.seq_len,
                 " tokens; use other data, a larger --seq-len or --too-long truncate");
  summary.documents = documents;
  summary.padding_tokens = static_cast<std::int64_t>(samples.size()) * longest - summary.tokens;
  return std::make_unique<DocumentSamples>(std::move(stream), longest, std::move(samples), std::move(begins),
                                           std::move(summary));
}

}  // namespace intarsia::data
