#include "intarsia/cli/commands/document_pass.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/cli/commands/stop_signal.h"
#include "intarsia/formats/training_ids.h"

namespace intarsia::cli {
namespace {

// Of text that a thread gets at a time: enough that sharing out costs nothing, and little memory.
constexpr std::size_t kBatchBytes = 2u << 20;

// Reads documents until there is enough to share out; false when there are none left.
bool read_batch(formats::DocumentReader& reader, std::size_t enough, std::vector<EncodedDocument>& batch) {
  batch.clear();
  std::size_t bytes = 0;
  while (bytes < enough) {
    StopSignal::check();
    EncodedDocument next;
    if (!reader.next(next.document)) break;
    bytes += next.document.text.size();
    batch.push_back(std::move(next));
  }
  return !batch.empty();
}

}  // namespace

void encode_documents(formats::DocumentReader& reader, const formats::Tokenizer& tokenizer, bool plain, int num_threads,
                      ByteProgress& progress, const std::function<void(const EncodedDocument&)>& out) {
  std::vector<EncodedDocument> batch;
  std::int64_t before = 0;  // bytes of the files that earlier batches took
  const std::size_t enough = kBatchBytes * static_cast<std::size_t>(std::max(1, num_threads));
  while (read_batch(reader, enough, batch)) {
    std::atomic<std::size_t> next = 0;
    std::atomic<std::int64_t> encoded = 0;
    std::mutex failure_mutex;
    std::exception_ptr failure;
    const auto encode_one = [&](EncodedDocument& document) {
      std::size_t reported = 0;
      const auto on_bytes = [&](std::size_t bytes) {
        StopSignal::check();
        reported += bytes;
        progress.update(before + (encoded += static_cast<std::int64_t>(bytes)));
      };
      const std::string& text = document.document.text;
      if (plain) {
        try {
          document.tokens = {tokenizer.encode(text, false, on_bytes), {}};
        } catch (const Error& error) {
          fail(error.kind(), document.document.origin, ": ", error.what());
        }
      } else {
        document.tokens = formats::training_ids(tokenizer, document.document, on_bytes);
      }
      on_bytes(text.size() > reported ? text.size() - reported : 0);
    };
    const auto work = [&] {
      try {
        for (std::size_t i = next++; i < batch.size(); i = next++) encode_one(batch[i]);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next = batch.size();
      }
    };
    const std::size_t helpers = std::min(static_cast<std::size_t>(num_threads), batch.size()) - 1;
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < helpers; ++i) threads.emplace_back(work);
      work();
    }
    if (failure) std::rethrow_exception(failure);
    before = reader.bytes_done();
    progress.update(before);
    for (const EncodedDocument& document : batch) out(document);
  }
}

}  // namespace intarsia::cli
