// One line of a JSONL file of documents.
#pragma once

#include <string>
#include <string_view>

namespace intarsia::formats {

// The "text" of the object that `line` holds; `place` ("FILE:LINE") begins the messages.
// Errors: kData for a line that is not such an object; kUnsupported for prompts and chats.
std::string text_of_json_line(std::string_view line, const std::string& place);

}  // namespace intarsia::formats
