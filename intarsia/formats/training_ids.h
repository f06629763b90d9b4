// Documents as the tokens that a model is trained on.
#pragma once

#include "intarsia/formats/documents.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::formats {

// Text: Tokenizer::encode_document(), and no marks: all of it is trained on. A prompt and its completion: the same,
// with marks; the end-of-text token belongs to the completion. A conversation: the ids of its text alone, as the chat
// template writes the special tokens itself.
// Errors: as the tokenizer's, with the document's place.
MarkedIds training_ids(const Tokenizer& tokenizer, const Document& document, const Tokenizer::Progress& progress = {});

}  // namespace intarsia::formats
