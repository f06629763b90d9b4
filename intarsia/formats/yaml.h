// The part of YAML 1.1 that configuration files are written in: mappings inside each other by indentation, lists of
// scalars, plain and quoted scalars on one line, comments. What goes beyond (anchors, tags, block texts, several
// documents, flow mappings with content) is refused with its place, never misread.
#pragma once

#include <string>
#include <string_view>

#include "intarsia/formats/json.h"

namespace intarsia::formats {

// The text as a tree with the places of keys and values; `name` stands for the file in messages. A plain scalar is null
// (empty, ~, null), a boolean (true, false, yes, no, on, off in YAML 1.1's spellings; `text` is the word as written), a
// number, or else a text. Errors: JsonError with file, line and column: also for duplicate keys and tabs as
// indentation.
JsonValue parse_yaml(std::string_view text, const std::string& name, const JsonOptions& options = {});

// Reads and parses a file. Errors: kIo when it cannot be read; JsonError.
JsonValue read_yaml_file(const std::string& path, const JsonOptions& options = {});

// `text` as a YAML scalar that is read as this text: in quotes where it must be ('no').
std::string yaml_quote(std::string_view text);

}  // namespace intarsia::formats
