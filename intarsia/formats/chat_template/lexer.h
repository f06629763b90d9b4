// Cuts a chat template into tokens, white space control applied. Internal to formats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace intarsia::formats::chat {

struct Token {
  enum Kind {
    kText,        // what stands outside of tags
    kBlockBegin,  // {%
    kBlockEnd,
    kPrintBegin,  // {{
    kPrintEnd,
    kName,
    kInteger,
    kFloat,
    kString,  // text: its value
    kOperator,
    kEnd,
  };
  Kind kind = kEnd;
  std::string text{};
  int line = 1;  // counted from 1
};

// The template as Hugging Face's environment reads it: trim_blocks and lstrip_blocks on, one line end at the end of the
// template dropped, CRLF as LF. Comments are left out. The last token is kEnd.
// Errors: kFormat with `name` and line.
// Source: Jinja documentation, "Whitespace Control".
std::vector<Token> lex(std::string_view source, const std::string& name);

}  // namespace intarsia::formats::chat
