// Token ids back to text.
#include "intarsia/base/error.h"
#include "intarsia/formats/tokenizer_impl.h"

namespace intarsia::formats {

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::string StreamDecoder::push(std::int32_t id) {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  return tokenizer_.impl_->spec.byte_fallback ? push_fallback(id) : push_byte_level(bytes);
}

std::string StreamDecoder::push_byte_level(std::string_view bytes) {
  held_ += bytes;
  std::size_t complete = 0;
  while (complete < held_.size()) {
    const Utf8Part part = utf8_part(held_, complete);
    if (part.kind == Utf8Part::kCutShort) break;
    complete += part.length;
  }
  std::string out = replace_invalid_utf8(std::string_view(held_).substr(0, complete));
  held_.erase(0, complete);
  return out;
}

std::string StreamDecoder::push_fallback(std::int32_t id) {
  if (id >= tokenizer_.vocab_size()) return {};
  const std::int16_t byte = tokenizer_.impl_->byte_of[static_cast<std::size_t>(id)];
  if (byte >= 0) {
    held_ += static_cast<char>(byte);
    return {};
  }
  std::string out = end_of_run();
  std::string_view text = tokenizer_.token_bytes(id);
  if (!begun_ && !text.empty()) {
    begun_ = true;
    if (tokenizer_.impl_->spec.strip_first_space && text.front() == ' ') text.remove_prefix(1);
  }
  return out.append(text);
}

// The text of the byte tokens held back.
std::string StreamDecoder::end_of_run() {
  std::string run = std::exchange(held_, {});
  if (first_invalid_utf8(run)) {
    const std::size_t count = run.size();
    run.clear();
    for (std::size_t i = 0; i < count; ++i) append_utf8(run, 0xFFFD);
  }
  if (begun_ || run.empty()) return run;
  begun_ = true;
  if (tokenizer_.impl_->spec.strip_first_space && run.front() == ' ') run.erase(0, 1);
  return run;
}

std::string StreamDecoder::finish() {
  if (tokenizer_.impl_->spec.byte_fallback) return end_of_run();
  return replace_invalid_utf8(std::exchange(held_, {}));
}

}  // namespace intarsia::formats
