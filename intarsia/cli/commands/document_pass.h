// Documents through a tokenizer on several threads, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "intarsia/cli/commands/byte_progress.h"
#include "intarsia/formats/documents.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::cli {

struct EncodedDocument {
  formats::Document document;
  formats::MarkedIds tokens;  // formats/training_ids.h
};

// Encodes every document of `reader` and hands the results on in their order, on the calling thread.
// `plain`: the ids of the text alone, without the post-processor's tokens and the end-of-text token.
// Memory: up to 2 MiB of text a thread (or one larger document) and its ids. Errors: as reading and encoding, with the
// document's place; Stopped after Ctrl-C.
void encode_documents(formats::DocumentReader& reader, const formats::Tokenizer& tokenizer, bool plain, int num_threads,
                      ByteProgress& progress, const std::function<void(const EncodedDocument&)>& out);

}  // namespace intarsia::cli
