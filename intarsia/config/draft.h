// The state of one resolution: what was read from where, and what is wrong with it. Internal to config/.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/config/resolve.h"
#include "intarsia/formats/json.h"

namespace intarsia::config {

// Where a value came from; later ones beat earlier ones only by the rules in resolve.h.
enum class From { kDefault, kFile, kSet, kFlag, kTrainer, kAuto };

// A DeepSpeed key with a value.
struct Cell {
  formats::JsonValue value;
  From from = From::kFile;
  formats::JsonPlace key_place;  // line 0: not from the file
  bool is_auto() const { return value.kind == formats::JsonValue::Kind::kString && value.text == "auto"; }
};

// A run setting as asked by a flag, the "intarsia" section or a trainer argument, under the flag's key.
struct Asked {
  std::vector<std::string> values;
  From from = From::kFlag;
  std::string path;   // as the user knows it: "--lr", "intarsia.lr", "learning_rate"
  std::string shown;  // "--lr 2e-5", "intarsia.lr = 2e-5", "learning_rate 2e-5 (trainer)"
  formats::JsonPlace place;
};

struct Draft {
  explicit Draft(const ResolveInput& from_input) : input(from_input) {}

  const ResolveInput& input;
  std::int64_t ranks = 1;                          // data-parallel ranks: --ranks, intarsia.ranks or the caller's
  std::map<std::string, Cell, std::less<>> cells;  // DeepSpeed keys, canonical paths
  std::map<std::string, formats::JsonPlace, std::less<>> sections;  // objects of the file
  std::map<std::string, Asked, std::less<>> asked;
  std::set<std::string, std::less<>> bad;  // paths with a problem: rules about them stay silent
  bool trainer_given = false;
  std::optional<std::int64_t> hidden_size;
  std::vector<Problem> problems;
  Resolved result;

  // "auto" that nothing settles takes Hugging Face's default (train, plan, a trainer file, or flags that play its
  // role).
  bool auto_defaults() const;

  const Cell* find(std::string_view path) const;
  const Asked* find_asked(std::string_view key) const;
  // Whether the file or --set gives a value that is not "auto".
  bool has(std::string_view path) const;
  bool is_bad(std::string_view path) const { return bad.find(path) != bad.end(); }

  // The value in force: of the cell, else the default of the schema. "auto" counts as absent.
  bool boolean(std::string_view path) const;
  std::int64_t integer(std::string_view path) const;
  double number(std::string_view path) const;
  std::string text(std::string_view path) const;

  void put(const std::string& path, std::string_view json, From from);
  void problem(std::string path, formats::JsonPlace at, std::string value, std::string message,
               std::string suggestion = {});
  // A problem with a cell, at its value.
  void problem(const std::string& path, const Cell& cell, std::string message, std::string suggestion = {});
  void report(Report::Level level, std::string path, formats::JsonPlace at, std::string message);
  void refuse(const std::string& path, std::string message, std::string suggestion = {});
};

// From text of the command line or the file to typed values; nothing when it is not one.
std::optional<double> parse_number(std::string_view text);
std::optional<std::int64_t> parse_integer(std::string_view text);

// The name of an origin: "FILE:LINE", "flag", "trainer", "auto", "--set", "default".
std::string origin_text(From from, const std::string& file, formats::JsonPlace place);

}  // namespace intarsia::config
