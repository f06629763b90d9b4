// One line of a JSONL file of documents. Internal to formats.
#pragma once

#include <string_view>

#include "intarsia/formats/documents.h"

namespace intarsia::formats {

// Fills `document`, whose origin ("FILE:LINE") begins the messages, from the object that `line` holds.
// Errors: kData for a line that is no document; kConfig for "messages" without a chat template.
void read_json_line(std::string_view line, const DocumentOptions& options, Document& document);

}  // namespace intarsia::formats
