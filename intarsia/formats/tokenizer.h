// Text to token ids and back, as a Hugging Face tokenizer.json says: a BPE over bytes (GPT-2, Llama 3, Qwen2, SmolLM)
// or over characters with a fallback to bytes (Llama 2, Mistral).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/formats/tokenizer_spec.h"

namespace intarsia::formats {

// Bytes [begin, end) of a text.
struct TextSpan {
  std::size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

struct MarkedIds {
  std::vector<std::int32_t> ids;
  std::vector<bool> marks;  // of each id
};

// Threads: const members may be called at once. Copies share everything.
class Tokenizer {
 public:
  // Called while a long text is encoded, with the bytes done since the last call; may throw to stop.
  using Progress = std::function<void(std::size_t)>;

  // Reads a folder's tokenizer.json, or the file itself, and, beside it, tokenizer_config.json and config.json for the
  // end-of-text token.
  // Errors: kIo, kFormat; kUnsupported with the name of a part that is not built.
  static Tokenizer load(const std::string& path);
  // From data at hand; `name` is for messages.
  Tokenizer(TokenizerSpec spec, std::string name, std::optional<std::int32_t> end_of_text);

  // The ids of a text. Special tokens that stand in the text become their ids; with `add_special` the post-processor's
  // tokens (such as a begin token) are put around it.
  // Errors: kData with the place for text that is not UTF-8.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special, const Progress& progress = {}) const;

  // The ids of one document of training text: encode() with special tokens and then one end-of-text token, unless the
  // post-processor ended with it. Errors: as encode's; kConfig when the tokenizer has no end-of-text token.
  std::vector<std::int32_t> encode_document(std::string_view text, const Progress& progress = {}) const;

  // The ids of encode() and, for each, whether any of its text lies inside one of `spans`, which are in order. Of the
  // post-processor's tokens those behind the text are marked. Errors: as encode's.
  MarkedIds encode_marked(std::string_view text, bool add_special, std::span<const TextSpan> spans) const;

  // The text of ids. Bytes that are not UTF-8 become U+FFFD: one for each maximal invalid part or, as the Hugging Face
  // library does with byte fallback, one for each byte of a run of byte tokens that is not UTF-8 as a whole.
  // Ids that the tokenizer does not know stand for nothing: the model's vocabulary may be larger.
  // Errors: kUsage for negative ids.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // Tokens, added ones included; ids are 0 to vocab_size() - 1.
  std::int64_t vocab_size() const;
  // The token that ends a text: eos_token of tokenizer_config.json, else eos_token_id of config.json (its first), else
  // the added token <|endoftext|> or <|end_of_text|>.
  std::optional<std::int32_t> end_of_text() const;
  // The bytes that an id stands for (a begin token's name for itself, U+2581 for a space); nothing for ids at and above
  // vocab_size().
  std::string_view token_bytes(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  // Bytes of text that the ids stand for, special tokens counted as none: the divisor of bits per byte.
  std::int64_t text_bytes(std::span<const std::int32_t> ids) const;
  // The file, for messages and for records of what made a token file.
  const std::string& name() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Decodes ids one by one, as they are generated: text comes out as soon as its last byte is there.
class StreamDecoder {
 public:
  // `tokenizer` is copied (cheap).
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special) : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that this id completes; a code point whose bytes are not all there is held back, with byte fallback a
  // whole run of byte tokens.
  std::string push(std::int32_t id);
  // What is still held back, as U+FFFD; nothing if all text is out. The parts together equal decode() of all ids.
  std::string finish();

 private:
  std::string push_byte_level(std::string_view bytes);
  std::string push_fallback(std::int32_t id);
  std::string end_of_run();

  Tokenizer tokenizer_;
  bool skip_special_;
  bool begun_ = false;  // text came out
  std::string held_;
};

}  // namespace intarsia::formats
