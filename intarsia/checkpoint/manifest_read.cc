#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/manifest.h"
#include "intarsia/formats/strict_json.h"
#include "intarsia/io/file.h"

namespace intarsia::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxManifestBytes = 100'000'000;
constexpr std::size_t kMaxFiles = 100'000;
constexpr std::size_t kMaxTensors = 1'000'000;
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxDims = 8;
constexpr std::size_t kMaxDepth = 6;
// The end of every manifest, with the digits of the checksum of all bytes before.
constexpr std::string_view kTailBegin = ",\n\"crc32c\": \"";
constexpr std::string_view kTailEnd = "\"}\n";
constexpr std::size_t kTailBytes = kTailBegin.size() + 8 + kTailEnd.size();

// One object of the manifest: every member is asked for exactly once, then done() refuses what is left.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    INTARSIA_CHECK(kFormat, json_.is_object(), where_, " must be an object");
  }
  const std::string& where() const { return where_; }

  const Json& member(const char* name) {
    const auto found = json_.find(name);
    INTARSIA_CHECK(kFormat, found != json_.end(), where_, ": \"", name, "\" is missing");
    ++asked_;
    return *found;
  }
  std::uint64_t unsigned_integer(const char* name) {
    const Json& value = member(name);
    INTARSIA_CHECK(kFormat, value.is_number_unsigned(), where_, ": \"", name,
                   "\" must be an integer that is not negative, not ", printable(value.dump()));
    return value.get<std::uint64_t>();
  }
  std::int64_t integer(const char* name, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    const std::uint64_t value = unsigned_integer(name);
    INTARSIA_CHECK(kFormat, value <= static_cast<std::uint64_t>(most), where_, ": \"", name, "\" is ", value,
                   "; at most ", most);
    return static_cast<std::int64_t>(value);
  }
  const std::string& string(const char* name) {
    const Json& value = member(name);
    INTARSIA_CHECK(kFormat, value.is_string(), where_, ": \"", name, "\" must be a string");
    return value.get_ref<const std::string&>();
  }
  const Json& array(const char* name, std::size_t most) {
    const Json& value = member(name);
    INTARSIA_CHECK(kFormat, value.is_array() && value.size() <= most, where_, ": \"", name,
                   "\" must be a list of at most ", most);
    return value;
  }
  DType dtype(const char* name) {
    const std::string& text = string(name);
    const std::optional<DType> found = dtype_from_safetensors_name(text);
    INTARSIA_CHECK(kFormat, found.has_value(), where_, ": unknown dtype \"", printable(text), "\"");
    return *found;
  }
  bool has(const char* name) const { return json_.contains(name); }
  double number(const char* name) {
    const Json& value = member(name);
    INTARSIA_CHECK(kFormat, value.is_number() && std::isfinite(value.get<double>()), where_, ": \"", name,
                   "\" must be a number");
    return value.get<double>();
  }
  void done() const {
    INTARSIA_CHECK(kFormat, asked_ == json_.size(), where_, " has ", json_.size(), " members, this format has ",
                   asked_);
  }

 private:
  const Json& json_;
  std::string where_;
  std::size_t asked_ = 0;
};

std::uint32_t read_crc(std::string_view text, const std::string& where) {
  std::uint32_t crc = 0;
  for (const char c : text) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    INTARSIA_CHECK(kFormat, text.size() == 8 && digit != std::string_view::npos, where,
                   ": a checksum has eight digits of 0-9a-f, not \"", printable(text), "\"");
    crc = crc << 4 | static_cast<std::uint32_t>(digit);
  }
  INTARSIA_CHECK(kFormat, text.size() == 8, where, ": the checksum is empty");
  return crc;
}

StoredFile read_file_entry(const Json& json, std::size_t index, const std::string& path) {
  Object object(json, concat(path, ": file ", index));
  StoredFile file;
  file.name = object.string("name");
  // One spelling only, so that no name can lead out of the folder.
  INTARSIA_CHECK(kFormat, file.name == body_name(static_cast<int>(index)), object.where(), " is called \"",
                 printable(file.name), "\", not ", body_name(static_cast<int>(index)));
  file.bytes = static_cast<std::uint64_t>(object.integer("bytes"));
  const std::string& digits = object.string("blocks");
  INTARSIA_CHECK(kFormat, digits.size() % 8 == 0 && digits.size() / 8 == file.num_blocks(), object.where(),
                 ": its checksums have ", digits.size(), " digits; ", file.bytes, " bytes need 8 for each of ",
                 file.num_blocks(), " blocks");
  for (std::size_t at = 0; at < digits.size(); at += 8)
    file.blocks.push_back(read_crc(std::string_view(digits).substr(at, 8), object.where()));
  object.done();
  return file;
}

std::int64_t integer_item(const Json& json, const std::string& where) {
  INTARSIA_CHECK(kFormat, json.is_number_unsigned() && json.get<std::uint64_t>() <= std::uint64_t{1} << 62, where,
                 ": expected an integer of at most 2^62, found ", printable(json.dump()));
  return json.get<std::int64_t>();
}

TensorKind read_kind(Object& object) {
  const std::string& text = object.string("kind");
  for (const TensorKind kind : plan::kTensorKinds)
    if (text == kind_name(kind)) return kind;
  fail(ErrorKind::kFormat, object.where(), ": unknown kind \"", printable(text), "\"");
}

void read_pieces(const Json& list, std::size_t num_files, const std::string& where, StoredTensor& tensor) {
  std::int64_t covered = 0;
  for (const Json& json : list) {
    INTARSIA_CHECK(kFormat, json.is_array() && json.size() == 3, where, ": a piece is [file, begin, end], not ",
                   printable(json.dump()));
    const std::int64_t file = integer_item(json[0], where);
    const plan::Range elements{integer_item(json[1], where), integer_item(json[2], where)};
    INTARSIA_CHECK(kFormat, file < static_cast<std::int64_t>(num_files), where, ": a piece lies in file ", file, " of ",
                   num_files);
    INTARSIA_CHECK(kFormat, elements.begin == covered && elements.end > elements.begin, where,
                   ": a piece has the elements ", elements.begin, " to ", elements.end, ", the next must begin at ",
                   covered, " and not be empty");
    covered = elements.end;
    tensor.pieces.push_back({static_cast<std::size_t>(file), elements});
  }
  INTARSIA_CHECK(kFormat, covered == tensor.numel(), where, ": its pieces have ", covered, " of its ", tensor.numel(),
                 " elements");
}

StoredTensor read_tensor(const Json& json, std::size_t index, std::size_t num_files, const std::string& path) {
  Object object(json, concat(path, ": tensor ", index));
  StoredTensor tensor;
  tensor.name = object.string("name");
  INTARSIA_CHECK(kFormat, !tensor.name.empty() && tensor.name.size() <= kMaxNameBytes, object.where(),
                 ": its name has ", tensor.name.size(), " bytes; from 1 to ", kMaxNameBytes, " are allowed");
  const std::string where = concat(path, ": tensor \"", printable(tensor.name), "\"");
  tensor.kind = read_kind(object);
  tensor.dtype = object.dtype("dtype");
  auto bytes = static_cast<std::int64_t>(dtype_size(tensor.dtype));
  for (const Json& dim : object.array("shape", kMaxDims)) {
    tensor.shape.push_back(integer_item(dim, where));
    INTARSIA_CHECK(kFormat, !__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes), where,
                   ": its shape has more bytes than a file can");
  }
  read_pieces(object.array("pieces", kMaxFiles), num_files, where, tensor);
  object.done();
  return tensor;
}

Progress read_progress(const Json& json, const std::string& path) {
  Object object(json, path + ": progress");
  Progress progress{.step = object.integer("step"),
                    .updates = object.integer("updates"),
                    .data_position = object.integer("data_position"),
                    .tokens = object.integer("tokens"),
                    .bad_steps = object.integer("bad_steps"),
                    .seed = object.unsigned_integer("seed")};
  if (object.has("not_reproducible_since")) progress.not_reproducible_since = object.integer("not_reproducible_since");
  if (object.has("loss_scale")) {
    Object scale(object.member("loss_scale"), path + ": progress.loss_scale");
    progress.loss_scale = {.scale = scale.number("scale"),
                           .hysteresis_left = scale.integer("hysteresis_left"),
                           .iteration = scale.integer("iteration"),
                           .last_overflow = scale.integer("overflow_steps") - 1};
    scale.done();
    INTARSIA_CHECK(kFormat, progress.loss_scale->scale > 0, path, ": the loss scale is ", progress.loss_scale->scale);
  }
  object.done();
  return progress;
}

// The text without its tail. Errors: kFormat when the checksum does not fit.
std::string checked_body(std::string_view text, const std::string& path) {
  const std::string_view tail = text.substr(text.size() - std::min(text.size(), kTailBytes));
  const bool has_tail =
      text.size() > kTailBytes && tail.starts_with(kTailBegin) && tail.ends_with(kTailEnd) &&
      tail.substr(kTailBegin.size(), 8).find_first_not_of("0123456789abcdef") == std::string_view::npos;
  INTARSIA_CHECK(kFormat, has_tail, path, " is damaged: its bytes ", text.size() - tail.size(), " to ", text.size(),
                 " are not its checksum; it is cut off or of another program");
  const std::string_view body = text.substr(0, text.size() - kTailBytes);
  const std::uint32_t stated = read_crc(tail.substr(kTailBegin.size(), 8), path);
  const std::uint32_t found = crc32c(std::as_bytes(std::span(body)));
  INTARSIA_CHECK(kFormat, stated == found, path, " is damaged: its bytes 0 to ", text.size(),
                 " do not agree: the CRC-32C of all before the last ", kTailBytes, " is ", crc32c_text(found),
                 ", they say ", crc32c_text(stated));
  return std::string(body) + "}";
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& path_given) {
  const std::string path = printable(path_given);
  INTARSIA_CHECK(kFormat, text.size() <= kMaxManifestBytes, path, " has ", text.size(), " bytes; the limit is ",
                 kMaxManifestBytes);
  const Json json = formats::parse_strict_json(checked_body(text, path), path, kMaxDepth);
  Object object(json, path);
  INTARSIA_CHECK(kFormat, object.string("format") == "intarsia-checkpoint", path,
                 " is no manifest of a checkpoint: \"format\" is \"", printable(object.string("format")), "\"");
  const std::int64_t version = object.integer("format_version");
  INTARSIA_CHECK(kUnsupported, version == kFormatVersion, path, " has format version ", version,
                 "; this program reads version ", kFormatVersion);
  Manifest manifest;
  manifest.progress = read_progress(object.member("progress"), path);
  Object layout(object.member("layout"), path + ": layout");
  manifest.ranks = static_cast<int>(layout.integer("ranks", static_cast<std::int64_t>(kMaxFiles)));
  manifest.stage = static_cast<int>(layout.integer("stage", 3));
  manifest.compute_dtype = layout.dtype("compute_dtype");
  if (layout.has("logical_micro_batches")) manifest.logical_micro_batches = layout.integer("logical_micro_batches");
  layout.done();
  for (const Json& file : object.array("files", kMaxFiles))
    manifest.files.push_back(read_file_entry(file, manifest.files.size(), path));
  std::unordered_set<std::string> names;
  for (const Json& tensor : object.array("tensors", kMaxTensors)) {
    manifest.tensors.push_back(read_tensor(tensor, manifest.tensors.size(), manifest.files.size(), path));
    INTARSIA_CHECK(kFormat, names.insert(manifest.tensors.back().stored_name()).second, path, ": \"",
                   printable(manifest.tensors.back().stored_name()), "\" stands there twice");
  }
  manifest.config = object.string("config");
  manifest.model_config = object.string("model_config");
  const Json& version_list = object.member("versions");
  Object versions(version_list, path + ": versions");
  for (const auto& entry : version_list.items()) manifest.versions[entry.key()] = versions.string(entry.key().c_str());
  object.done();
  return manifest;
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = concat(directory, "/", kManifestName);
  return parse_manifest(io::read_text_file(path, kMaxManifestBytes), path);
}

}  // namespace intarsia::checkpoint
