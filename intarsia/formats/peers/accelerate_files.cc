#include "intarsia/formats/peers/accelerate_files.h"

#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/json.h"
#include "intarsia/formats/peers/archive_reader.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& path, const char* name) {
  std::error_code error;
  return fs::exists(fs::path(path) / name, error);
}

// GradScaler doubles the scale at the growth_interval-th good step in a row, which _growth_tracker counts; the counters
// are set so that DeepSpeed's rule, which this program follows, does so at the same step. It has no hysteresis.
void read_scaler(const std::string& path, CheckpointContents& contents) {
  const ArchiveFile file(path_inside(path, "scaler.pt", path));
  file.add_to(contents);
  const PickleValue root = file.root();
  INTARSIA_CHECK(kFormat, root.kind() == PickleKind::kDict, printable(file.path()), " holds ", root.describe(),
                 ", expected the dict of a GradScaler");
  if (root.size() == 0) return;  // of one that was not enabled
  const auto number = [&](const char* key) {
    const auto value = root.find(key);
    const auto found = value ? number_of(file.archive(), *value) : std::nullopt;
    INTARSIA_CHECK(kFormat, found.has_value(), printable(file.path()), " has no number \"", key, "\"");
    return *found;
  };
  const double scale = number("scale");
  INTARSIA_CHECK(kFormat, scale > 0 && scale < 1e30, printable(file.path()), ": the scale is ", shortest(scale));
  const std::int64_t tracker = count_of(number("_growth_tracker")).value_or(-1);
  INTARSIA_CHECK(kFormat, tracker >= 0, printable(file.path()), ": _growth_tracker is no count");
  contents.state.loss_scale = {.scale = scale,
                               .dynamic = true,
                               .hysteresis_left = 1,
                               .iteration = tracker + 1,
                               .last_overflow = -1,
                               .window = count_of(number("growth_interval")).value_or(1),
                               .hysteresis = 1};
}

}  // namespace

void read_accelerate_files(const std::string& path, CheckpointContents& contents) {
  for (const char* name : {"scheduler.bin", "scheduler.pt"}) {
    if (!has(path, name)) continue;
    const ArchiveFile file(path_inside(path, name, path));
    file.add_to(contents);
    contents.state.schedule = dict_numbers(file.root());
  }
  if (has(path, "scaler.pt")) read_scaler(path, contents);
  if (has(path, "trainer_state.json")) {
    const std::string file = path_inside(path, "trainer_state.json", path);
    const JsonValue trainer = read_json_file(file, {.max_bytes = std::size_t{1} << 28});
    const JsonMember* const step = trainer.find("global_step");
    const auto number = step == nullptr ? std::nullopt : step->value.as_integer();
    INTARSIA_CHECK(kFormat, number && *number >= 0, printable(file), ": global_step is ",
                   step == nullptr ? "not there" : printable(step->value.show()), ", expected a number of steps");
    contents.state.step = *number;
  }
}

}  // namespace intarsia::formats
