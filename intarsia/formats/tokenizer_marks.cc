// Which tokens a piece of the text became: for losses that count only some of it.
#include <algorithm>
#include <limits>

#include "intarsia/base/error.h"
#include "intarsia/formats/tokenizer_impl.h"

namespace intarsia::formats {
namespace {

bool overlap(std::span<const TextSpan> spans, std::size_t begin, std::size_t end) {
  return std::any_of(spans.begin(), spans.end(),
                     [&](const TextSpan& span) { return begin < span.end && span.begin < end; });
}

}  // namespace

MarkedIds Tokenizer::encode_marked(std::string_view text, bool add_special, std::span<const TextSpan> spans) const {
  const std::optional<std::size_t> invalid = first_invalid_utf8(text);
  INTARSIA_CHECK(kData, !invalid, "the text is not UTF-8: byte ", invalid.value_or(0), " of ", text.size());
  MarkedIds out;
  if (add_special) {
    out.ids = impl_->spec.prefix;
    out.marks.resize(out.ids.size(), false);
  }
  std::unique_ptr<Impl::Scratch> scratch = impl_->take_scratch();

  // Bytes of the words that a piece becomes: a normalizer and a space in front change how many there are.
  const auto size_as_words = [&](std::string_view piece, bool first) {
    std::size_t size = 0;
    impl_->walk(
        piece, first, *scratch, [&](std::string_view word) { size += word.size(); },
        [&](std::int32_t, std::string_view taken) { size += taken.size(); });
    return size;
  };
  const auto size_of = [&](std::int32_t id) {
    const auto i = static_cast<std::size_t>(id);
    if (!impl_->spec.byte_fallback) return impl_->bytes[i].size();
    return impl_->byte_of[i] >= 0 ? std::size_t{1} : impl_->spec.tokens[i].size();
  };

  const auto on_piece = [&](std::string_view piece) {
    const auto begin = static_cast<std::size_t>(piece.data() - text.data());
    const std::size_t end = begin + piece.size();
    std::vector<TextSpan> inside;  // the spans in bytes of the words
    for (const TextSpan& span : spans) {
      if (span.begin >= std::min(span.end, end) || span.end <= begin) continue;
      TextSpan moved{0, std::numeric_limits<std::size_t>::max()};
      if (span.begin > begin) moved.begin = size_as_words(piece.substr(0, span.begin - begin), begin == 0);
      if (span.end < end) moved.end = size_as_words(piece.substr(0, span.end - begin), begin == 0);
      inside.push_back(moved);
    }
    std::size_t at = 0;
    const auto mark = [&](std::size_t size) {
      out.marks.push_back(overlap(inside, at, at + size));
      at += size;
    };
    impl_->walk(
        piece, begin == 0, *scratch,
        [&](std::string_view word) {
          const std::size_t first = out.ids.size();
          impl_->encode_word(word, *scratch, out.ids);
          std::size_t size = 0;
          for (std::size_t i = first; i < out.ids.size(); ++i) size += size_of(out.ids[i]);
          if (size == word.size()) {
            for (std::size_t i = first; i < out.ids.size(); ++i) mark(size_of(out.ids[i]));
          } else {  // characters that are not in the vocabulary: the word is marked as a whole
            out.marks.resize(out.ids.size(), overlap(inside, at, at + word.size()));
            at += word.size();
          }
        },
        [&](std::int32_t id, std::string_view taken) {
          out.ids.push_back(id);
          mark(taken.size());
        });
  };
  impl_->raw_added.cut(text, on_piece, [&](std::int32_t id, std::string_view taken) {
    const auto begin = static_cast<std::size_t>(taken.data() - text.data());
    out.ids.push_back(id);
    out.marks.push_back(overlap(spans, begin, begin + taken.size()));
  });
  impl_->give_back(std::move(scratch));
  if (add_special) {
    out.ids.insert(out.ids.end(), impl_->spec.suffix.begin(), impl_->spec.suffix.end());
    out.marks.resize(out.ids.size(), true);
  }
  return out;
}

}  // namespace intarsia::formats
