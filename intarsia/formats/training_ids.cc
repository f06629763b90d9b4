#include "intarsia/formats/training_ids.h"

#include "intarsia/base/error.h"

namespace intarsia::formats {

MarkedIds training_ids(const Tokenizer& tokenizer, const Document& document, const Tokenizer::Progress& progress) {
  try {
    switch (document.kind) {
      case DocumentKind::kText:
        return {tokenizer.encode_document(document.text, progress), {}};
      case DocumentKind::kChat:
        return tokenizer.encode_marked(document.text, false, document.trained);
      case DocumentKind::kCompletion: {
        const auto end = tokenizer.end_of_text();
        INTARSIA_CHECK(kConfig, end, tokenizer.name(),
                       ": no end-of-text token to put after a completion; give eos_token in tokenizer_config.json");
        MarkedIds out = tokenizer.encode_marked(document.text, true, document.trained);
        if (out.ids.empty() || out.ids.back() != *end) {
          out.ids.push_back(*end);
          out.marks.push_back(true);
        }
        return out;
      }
    }
  } catch (const Error& error) {
    fail(error.kind(), document.origin, ": ", error.what());
  }
  INTARSIA_INVARIANT(false, "unknown kind of document");
}

}  // namespace intarsia::formats
