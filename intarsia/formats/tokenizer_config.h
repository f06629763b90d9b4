// Which token ends a text, from the files beside a tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "intarsia/formats/tokenizer_spec.h"

namespace intarsia::formats {

// eos_token of `directory`/tokenizer_config.json, else eos_token_id of config.json there (the first of a list), else
// the added token <|endoftext|> or <|end_of_text|>, else none. The files may be missing.
// Errors: kFormat when a file names a token that the vocabulary does not have.
std::optional<std::int32_t> find_end_of_text(const std::string& directory, const TokenizerSpec& spec);

}  // namespace intarsia::formats
