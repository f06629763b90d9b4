#include "intarsia/formats/peers/archive_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/float_cast.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

template <typename T>
double element(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return static_cast<double>(value);
}

}  // namespace

std::string path_inside(const std::string& folder, const std::string& name, const std::string& where) {
  const auto refuse = [&](const char* cause) {
    fail(ErrorKind::kFormat, printable(where), " names \"", printable(name), "\", ", cause,
         "; the files of a checkpoint lie in its folder");
  };
  const fs::path relative(name);
  if (name.empty() || name.find('\0') != name.npos) refuse("which is no file name");
  if (relative.is_absolute()) refuse("an absolute path");
  for (const fs::path& part : relative)
    if (part == "..") refuse("which leaves the folder");
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  INTARSIA_CHECK(kIo, !error, printable(folder), " cannot be opened: ", error.message());
  const fs::path target = fs::canonical(root / relative, error);
  INTARSIA_CHECK(kIo, !error, printable(where), " names \"", printable(name), "\", which is not in ", printable(folder),
                 " (", error.message(), "); was the checkpoint copied completely?");
  const auto [end, position] = std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  if (end != root.end() || position == target.end()) refuse("a link that leaves the folder");
  return (fs::path(folder) / relative).string();
}

std::string highest_numbered(const std::string& folder, std::string_view prefix,
                             const std::function<bool(const std::string&)>& is_one) {
  std::string best;
  std::int64_t highest = -1;
  for (const std::string& name : io::list_directory(folder)) {
    std::int64_t number = 0;
    if (!name.starts_with(prefix)) continue;
    const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size() || number <= highest) continue;
    if (!is_one((fs::path(folder) / name).string())) continue;
    highest = number;
    best = name;
  }
  return best;
}

std::size_t ArchiveFile::add_to(CheckpointContents& contents) const {
  contents.files.push_back({.path = path(), .bytes = map_.size(), .archives = {{0, map_.size()}}});
  return contents.files.size() - 1;
}

std::optional<double> number_of(const TorchArchive& archive, const PickleValue& value) {
  if (const auto number = value.number()) return number;
  const auto tensor = archive.tensor(value);
  if (!tensor || tensor->numel() != 1) return std::nullopt;
  const auto element_bytes = archive.bytes(*tensor);
  if (is_weight_dtype(tensor->dtype)) {
    if (tensor->dtype == DType::kF64) return element<double>(element_bytes);
    float out = 0;
    widen(element_bytes.data(), tensor->dtype, 1, &out);
    return out;
  }
  switch (tensor->dtype) {
    case DType::kI64:
      return element<std::int64_t>(element_bytes);
    case DType::kI32:
      return element<std::int32_t>(element_bytes);
    default:
      return std::nullopt;
  }
}

std::optional<std::int64_t> count_of(const std::optional<double>& number) {
  // Not-a-number fails both.
  if (!number || !(*number >= -1e15) || !(*number <= 1e15)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::optional<PickleValue> find_key(const PickleValue& dict, std::int64_t key) {
  if (dict.kind() != PickleKind::kDict) return std::nullopt;
  for (std::size_t i = 0; i < dict.size(); i += 2)
    if (dict[i].kind() == PickleKind::kInteger && dict[i].integer() == key) return dict[i + 1];
  return std::nullopt;
}

std::int64_t numel_of(const std::vector<std::int64_t>& shape, const std::string& where, const std::string& what) {
  std::int64_t numel = 1;
  for (const std::int64_t size : shape)
    INTARSIA_CHECK(kFormat, !__builtin_mul_overflow(numel, size, &numel) && numel <= (std::int64_t{1} << 59),
                   printable(where), ": ", printable(what), " has the shape ", shape_text(shape), ", which cannot be");
  return numel;
}

std::vector<std::int64_t> sizes_of(const PickleValue& value, const std::string& where, const std::string& what) {
  const PickleValue list =
      value.class_name() == "torch.Size" && value.arguments().size() == 1 ? value.arguments()[0] : value;
  // torch.Size() of a scalar comes without arguments.
  if (value.class_name() == "torch.Size" && value.arguments().size() == 0) return {};
  INTARSIA_CHECK(kFormat, (list.kind() == PickleKind::kTuple || list.kind() == PickleKind::kList) && list.size() <= 16,
                 printable(where), ": ", printable(what), " is ", value.describe(), ", expected up to 16 sizes");
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto number = list[i].integer();
    INTARSIA_CHECK(kFormat, number && *number >= 0, printable(where), ": ", printable(what), " has the size ",
                   number ? std::to_string(*number) : list[i].describe());
    out.push_back(*number);
  }
  return out;
}

std::map<std::string, double> group_numbers(const PickleValue& group) {
  std::map<std::string, double> out;
  for (const char* key : {"lr", "initial_lr", "eps", "weight_decay"})
    if (const auto value = group.find(key); value && value->number()) out[key] = *value->number();
  const auto betas = group.find("betas");
  if (betas && betas->size() == 2 && (*betas)[0].number() && (*betas)[1].number()) {
    out["beta1"] = *(*betas)[0].number();
    out["beta2"] = *(*betas)[1].number();
  }
  return out;
}

std::map<std::string, double> dict_numbers(const PickleValue& dict) {
  std::map<std::string, double> out;
  if (dict.kind() != PickleKind::kDict) return out;
  for (std::size_t i = 0; i < dict.size(); i += 2) {
    const auto key = dict[i].text();
    PickleValue value = dict[i + 1];
    if (value.kind() == PickleKind::kList && value.size() >= 1) value = value[0];
    if (key && value.number()) out[std::string(*key)] = *value.number();
  }
  return out;
}

}  // namespace intarsia::formats
