// Samples to train or evaluate on, whatever file they come from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "intarsia/formats/documents.h"

namespace intarsia::formats {
class Tokenizer;
}  // namespace intarsia::formats

namespace intarsia::data {

// A label that counts for nothing. Any other label is a token id.
inline constexpr std::int64_t kNotCounted = -100;

// What the files held and what of it the samples leave out.
struct DataSummary {
  std::int64_t files = 0;
  std::int64_t documents = 0;            // 0 where not known: samples, and tokens with Pack::kConcat
  std::int64_t tokens = 0;               // in the samples, padding left out
  std::int64_t trained_tokens = 0;       // of them those that are trained on; 0: all
  std::int64_t padding_tokens = 0;       // that fill samples up: Pack::kIsolate and kOff
  std::int64_t dropped_tokens = 0;       // a rest shorter than a sample
  std::int64_t dropped_documents = 0;    // longer than a sample, TooLong::kDrop
  std::int64_t truncated_documents = 0;  // longer than a sample, TooLong::kTruncate
  std::int64_t bad_lines = 0;            // skipped, formats::BadLines::kSkip
  std::int64_t held_out_samples = 0;     // to evaluate on; the counts above include them
  std::string mixture{};                 // of weighted sources: how often each is seen

  // Adds the counts of another source.
  void add(const DataSummary& other);
  // "2 files, 37 documents, 1204 tokens, 12 samples of 100 tokens, 4 tokens dropped (shorter than a sample)".
  std::string describe(std::int64_t num_samples, std::int64_t seq_len) const;
};

// Samples of one length. As Hugging Face's models want it, the target of position t is labels[t + 1] of the same
// sample; the model shifts, not the data, and labels[0] is never used.
// Threads: const members may be called at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t num_samples() const = 0;
  virtual std::int64_t seq_len() const = 0;

  // Writes sample `index`: seq_len() token ids, and as many labels, each a token id or kNotCounted.
  // Errors: kData for an id outside the vocabulary, with file, place, id and vocabulary; kInternal for an index
  // outside.
  virtual void fill(std::int64_t index, std::int64_t* ids, std::int64_t* labels) const = 0;

  // Whether samples are several documents that must not see each other (Pack::kIsolate): then positions() tells where
  // each begins.
  virtual bool is_isolated() const { return false; }
  // Writes the positions of sample `index`, seq_len() of them: each document begins at 0.
  // Errors: kInternal for an index outside.
  virtual void positions(std::int64_t index, std::int64_t* out) const;

  virtual const DataSummary& summary() const = 0;
};

// How a stream of tokens or documents becomes samples.
enum class Pack {
  kOff,      // each document is one sample
  kConcat,   // one stream, cut every seq_len tokens
  kIsolate,  // as many whole documents in turn as fit, without attention between them
};

// What happens to a document of more than seq_len tokens with Pack::kOff and kIsolate.
enum class TooLong { kError, kTruncate, kDrop };

// What happens to the end of a stream that does not fill a sample.
enum class Tail {
  kDrop,  // left out, and counted in the summary: training
  kPad,   // filled up with tokens whose labels are kNotCounted, so that no token is lost: evaluation
};

struct DataOptions {
  std::vector<std::string> paths{};  // files and globs, in the order of the samples; each may end in :WEIGHT
  std::int64_t seq_len = 0;          // tokens of a sample; ready samples have their own length, this is not looked at
  std::int64_t vocab_size = 0;       // rows of the model's embedding; 0: ids are not checked
  Pack pack = Pack::kConcat;
  TooLong too_long = TooLong::kError;
  Tail tail = Tail::kDrop;
  // For documents, and for the end-of-text token of .bin files that do not tell it; used while opening only.
  const formats::Tokenizer* tokenizer = nullptr;
  const formats::ChatFormat* chat = nullptr;  // for lines with "messages"; used while opening only
  formats::TrainOn train_on = formats::TrainOn::kAssistant;
  formats::BadLines bad_lines = formats::BadLines::kError;
  std::string cache_dir{};  // folder for tokenized documents; empty: they stay in memory
};

// Called while documents are tokenized, with the bytes done and in all; may throw to stop.
using TokenizeProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Opens the data that the paths name. A file's name ending tells its kind; kinds do not mix:
// - ".safetensors", ready samples: `input_ids` [N, S] int32 or int64 and, where given, `labels` of the same shape
//   (without: every token is a target). Files of one S are joined in the order of the paths.
// - ".bin", or ".idx" of Megatron's, tokens (formats/token_file.h).
// - anything else, documents (formats/documents.h): text, or JSONL with `text`, `prompt` and `completion`, or
//   `messages`, packed or not. formats/training_ids.h says which tokens they become, and which of them have labels.
//
// Pack::kConcat: the stream is cut every seq_len tokens. Every token lies in exactly one sample; the first of a sample
// is input only, so seq_len - 1 of its tokens are targets. The rest goes by `tail`.
// Pack::kOff: sample k is document k. A document ends where its file's map of documents says, else with its end-of-text
// token (also one that stands in a text) and with its file. The length of all samples is that of the longest, at most
// seq_len; shorter ones are filled up with end-of-text tokens whose labels are kNotCounted. Documents above seq_len go
// by `too_long`. Pack::kIsolate: documents as with kOff, taken in turn; a sample is as many as fit in seq_len, filled
// up. The first token of a document has no label.
//
// Weights: a source of weight w gives the share w (of their sum) of an epoch's samples. An epoch is as short as
// possible with every sample of every source in it; samples of sources that are small for their weight come several
// times.
//
// Memory: samples and tokens stay in the mapped files. Documents are tokenized in memory, 4 bytes a token on each rank,
// unless cache_dir is set: then token_cache.h, whose file the ranks share. On several ranks call prepare_tokens() with
// the same options before the ranks start (or on one of them), so that only one tokenizes.
// Errors: kUsage for no paths or a path that matches nothing; kConfig for mixed kinds, documents without a tokenizer, a
// tokenizer larger than the vocabulary; kFormat and kIo for files; kData where no sample comes out, an id lies outside
// the vocabulary or a document is too long.
std::unique_ptr<Dataset> open_dataset(const DataOptions& options);

struct TrainAndEval {
  std::unique_ptr<Dataset> train, eval;
};

// The same, with the share `fraction` (above 0, below 1) of each source's samples, chosen by `seed`, held out to
// evaluate on. With Pack::kConcat a document that lies in two samples may be in both. Memory: 16 bytes a sample.
// Errors: as open_dataset's; kConfig for a fraction outside, kData for a source with too few samples.
TrainAndEval open_split(const DataOptions& options, double fraction, std::uint64_t seed);

// Tokenizes what open_dataset(options) would, into options.cache_dir, unless it is there already. Nothing happens
// without a cache_dir or where the paths name no documents. Errors: as open_dataset's.
void prepare_tokens(const DataOptions& options, const TokenizeProgress& progress = {});

}  // namespace intarsia::data
