#include "intarsia/formats/tokenizer_words.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include "intarsia/base/error.h"

namespace intarsia::formats {
namespace {

// White_Space of Unicode, spelt out: PCRE2's own \s also has U+180E, which left that class in Unicode 6.3.
#define SPACES \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

// What PCRE2 runs for each rule: the source with \s and \S spelt out.
constexpr const char* kGpt2Program = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|[" SPACES
                                     "]+(?![^" SPACES "])|[" SPACES "]+";
#define AFTER_NUMBERS \
  " ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACES "]*[\\r\\n]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"
#define BEFORE_NUMBERS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
constexpr const char* kLlama3Program = BEFORE_NUMBERS "\\p{N}{1,3}|" AFTER_NUMBERS;
constexpr const char* kQwen2Program = BEFORE_NUMBERS "\\p{N}|" AFTER_NUMBERS;
#undef AFTER_NUMBERS
#undef BEFORE_NUMBERS
#undef SPACES

#define METASPACE "\\x{2581}"

struct Rule {
  std::string_view name;
  std::string_view source;
  const char* program;
};

// By WordPattern.
constexpr std::array<Rule, 7> kRules = {{
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", kGpt2Program},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kLlama3Program},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kQwen2Program},
    {"digits", R"(\p{N})", "\\p{N}|[^\\p{N}]+"},
    {"numbers", R"(\p{N}+)", "\\p{N}+|[^\\p{N}]+"},
    {"metaspace", "", METASPACE "[^" METASPACE "]*|[^" METASPACE "]+"},
    {"space_runs", "", METASPACE "*[^" METASPACE "]+|" METASPACE "+"},
}};
#undef METASPACE

const Rule& rule_of(WordPattern pattern) { return kRules.at(static_cast<std::size_t>(pattern)); }

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

pcre2_code* compile(const char* program) {
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(program), PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, nullptr);
  INTARSIA_INVARIANT(code != nullptr, "word pattern does not compile: error ", error, " at ", where);
  // Where the system forbids writable code pages the interpreter does the same, only slower.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return code;
}

// Compiled when first asked for, then shared.
const pcre2_code* compiled(WordPattern pattern) {
  static std::mutex mutex;
  static std::array<std::unique_ptr<pcre2_code, CodeDeleter>, kRules.size()> codes;
  const std::lock_guard lock(mutex);
  auto& code = codes.at(static_cast<std::size_t>(pattern));
  if (!code) code.reset(compile(rule_of(pattern).program));
  return code.get();
}

}  // namespace

std::string_view name(WordPattern pattern) { return rule_of(pattern).name; }
std::string_view source(WordPattern pattern) { return rule_of(pattern).source; }

struct WordSplitter::Match {
  const pcre2_code* code;
  pcre2_match_data* data;
  pcre2_match_context* context;

  explicit Match(WordPattern pattern)
      : code(compiled(pattern)),
        data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)) {
    INTARSIA_CHECK(kMemory, data != nullptr && context != nullptr, "no memory for a PCRE2 match block");
  }
  ~Match() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;
};

WordSplitter::WordSplitter(WordPattern pattern) : match_(std::make_unique<Match>(pattern)) {}
WordSplitter::WordSplitter(WordSplitter&&) noexcept = default;
WordSplitter& WordSplitter::operator=(WordSplitter&&) noexcept = default;
WordSplitter::~WordSplitter() = default;

std::size_t WordSplitter::word_end(std::string_view text, std::size_t at) {
  // The patterns step back over a run of spaces at most a few times, so a limit linear in the text is never met by
  // text; it is there so that a mistake ends with an error and not with a hang.
  const std::uint64_t limit = 10'000'000 + 8 * static_cast<std::uint64_t>(text.size());
  pcre2_set_match_limit(match_->context, static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, 0xFFFFFFFF)));
  const auto run = [&](std::uint32_t options) {
    return pcre2_match(match_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                       options | PCRE2_NO_UTF_CHECK, match_->data, match_->context);
  };
  int result = run(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
  INTARSIA_CHECK(kData, result > 0, "cannot cut the text into words at byte ", at, " of ", text.size(),
                 ": PCRE2 error ", result, "; split the document into smaller ones");
  const std::size_t end = pcre2_get_ovector_pointer(match_->data)[1];
  INTARSIA_INVARIANT(end > at, "a word without bytes at ", at);
  return end;
}

}  // namespace intarsia::formats
