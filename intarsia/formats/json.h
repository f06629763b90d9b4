// JSON as people write it in configuration files, with the place of every key and value, so that each mistake can be
// reported where it stands. Relaxed as DeepSpeed's reader (HJSON) is: comments (//, #, /* */), trailing commas, a line
// end in the place of a comma, bare keys, quotes of either kind, a byte-order mark, CRLF. Stricter than it: duplicate
// keys, invalid UTF-8, unquoted words as values and deep nesting are refused. For small files; large ones have their
// own readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/base/error.h"

namespace intarsia::formats {

// Line and column, counted from 1, columns in characters.
struct JsonPlace {
  int line = 0;
  int column = 0;
};

struct JsonMember;

struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;                 // of a string its content, of a number its digits as written ("5e8", "NaN")
  std::vector<JsonValue> items;     // of an array
  std::vector<JsonMember> members;  // of an object, in file order; keys are unique
  JsonPlace place;

  // The member called `key`, or nullptr; also nullptr when this is no object.
  const JsonMember* find(std::string_view key) const;
  // The number as an integer: "500000000", "5e8" and "4.0" are integers, "5.5" is not. Nothing for other kinds,
  // fractions, and what 64 bits cannot hold.
  std::optional<std::int64_t> as_integer() const;
  // The number; infinite where it is written so or too large for a double. Nothing for other kinds.
  std::optional<double> as_number() const;
  // The value as JSON text on one line, numbers as written, cut at about `limit` bytes.
  std::string show(std::size_t limit = 120) const;
};

struct JsonMember {
  std::string key;
  JsonPlace place;  // of the key
  JsonValue value;
};

struct JsonOptions {
  std::size_t max_bytes = 1 << 20;  // of the file
  int max_depth = 32;               // objects and arrays inside each other
};

// A file that is not JSON, with the place. kind() is kFormat.
class JsonError : public Error {
 public:
  JsonError(const std::string& name, JsonPlace at, std::string key_path, std::string found, std::string reason);
  const JsonPlace& place() const { return place_; }
  const std::string& path() const { return path_; }      // dotted path of the key in question, or empty
  const std::string& value() const { return value_; }    // what was found, or empty
  const std::string& detail() const { return detail_; }  // the reason alone

 private:
  JsonPlace place_;
  std::string path_, value_, detail_;
};

// Parses `text`; `name` stands for the file in messages. Errors: JsonError at the first mistake.
JsonValue parse_json(std::string_view text, const std::string& name, const JsonOptions& options = {});

// Reads and parses a file. Errors: kIo when it cannot be read; JsonError.
JsonValue read_json_file(const std::string& path, const JsonOptions& options = {});

// `text` as a JSON string, with its quotes.
std::string json_quote(std::string_view text);

}  // namespace intarsia::formats
