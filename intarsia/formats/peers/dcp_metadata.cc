#include "intarsia/formats/peers/dcp_metadata.h"

#include <filesystem>
#include <map>
#include <optional>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/archive_reader.h"
#include "intarsia/formats/pickle/pickle.h"
#include "intarsia/io/mapped_file.h"

namespace intarsia::formats {
namespace {

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata.";

std::optional<DType> dtype_of(std::string_view name) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"torch.float32", DType::kF32},   {"torch.float64", DType::kF64}, {"torch.float16", DType::kF16},
      {"torch.bfloat16", DType::kBF16}, {"torch.int64", DType::kI64},   {"torch.int32", DType::kI32},
      {"torch.int16", DType::kI16},     {"torch.int8", DType::kI8},     {"torch.uint8", DType::kU8},
      {"torch.bool", DType::kBool}};
  for (const auto& [known, dtype] : kTypes)
    if (known == name) return dtype;
  return std::nullopt;
}

class MetadataReader {
 public:
  MetadataReader(const PickleValue& root, std::string path) : path_(std::move(path)), root_(root) {}

  DcpMetadata run() {
    check(root_.class_name() == concat(kModule, "Metadata"), "it holds ", root_.describe(), ", not DCP's Metadata");
    const PickleValue tensors = field(root_, "state_dict_metadata");
    read_storage(field(root_, "storage_data"));
    const auto planner = root_.state()->find("planner_data");
    DcpMetadata out;
    check(tensors.kind() == PickleKind::kDict, "state_dict_metadata is ", tensors.describe());
    for (std::size_t i = 0; i < tensors.size(); i += 2) {
      const auto key = tensors[i].text();
      check(key.has_value(), "a key of state_dict_metadata is ", tensors[i].describe());
      const std::vector<std::string> path = planner ? path_of(*planner, *key) : std::vector<std::string>();
      const PickleValue value = tensors[i + 1];
      if (value.class_name() == concat(kModule, "TensorStorageMetadata")) {
        out.tensors.push_back(tensor(std::string(*key), value));
        out.tensors.back().path = path;
      } else {
        check(value.class_name() == concat(kModule, "BytesStorageMetadata"), printable(*key), " is ", value.describe());
        out.values.push_back({std::string(*key), path, entry(std::string(*key), {})});
      }
    }
    return out;
  }

 private:
  template <typename... Parts>
  void check(bool good, const Parts&... parts) const {
    INTARSIA_CHECK(kFormat, good, printable(path_), ": ", parts...);
  }

  PickleValue field(const PickleValue& object, const char* key) const {
    const auto state = object.state();
    const auto value = state ? state->find(key) : std::nullopt;
    check(value.has_value(), object.describe(), " has no ", key);
    return *value;
  }

  std::vector<std::int64_t> sizes(const PickleValue& value, const std::string& what) const {
    return sizes_of(value, path_, what);
  }

  // Keyed by MetadataIndex(fqn, offset, index).
  void read_storage(const PickleValue& dict) {
    check(dict.kind() == PickleKind::kDict, "storage_data is ", dict.describe());
    for (std::size_t i = 0; i < dict.size(); i += 2) {
      const PickleValue name = field(dict[i], "fqn");
      const auto offset = dict[i].state()->find("offset");  // of tensors only
      const PickleValue file = field(dict[i + 1], "relative_path");
      check(name.text().has_value() && file.text().has_value(), "an entry of storage_data has no name or no file");
      const std::string key(*name.text());
      const auto begin = field(dict[i + 1], "offset").integer(), length = field(dict[i + 1], "length").integer();
      check(begin && length && *begin >= 0 && *length >= 0, "the place of \"", printable(key), "\" is no place");
      const auto transforms = dict[i + 1].state()->find("transform_descriptors");
      if (transforms && transforms->size() > 0)
        fail(ErrorKind::kUnsupported, printable(path_), ": \"", printable(key), "\" is transformed (",
             printable((*transforms)[0].text().value_or(transforms->describe())), "), which is not supported; save ",
             "without extensions");
      std::vector<std::int64_t> at;
      if (offset && offset->kind() != PickleKind::kNone) at = sizes(*offset, key);
      const bool is_new =
          entries_
              .emplace(std::pair(key, at), DcpEntry{std::string(*file.text()), static_cast<std::uint64_t>(*begin),
                                                    static_cast<std::uint64_t>(*length)})
              .second;
      check(is_new, "\"", printable(key), "\" at ", shape_text(at), " is stored twice");
    }
  }

  DcpEntry entry(const std::string& key, const std::vector<std::int64_t>& offsets) const {
    const auto found = entries_.find({key, offsets});
    check(found != entries_.end(), "\"", printable(key), "\" at ", shape_text(offsets), " is stored nowhere");
    return found->second;
  }

  std::vector<std::string> path_of(const PickleValue& planner, std::string_view key) const {
    if (planner_.empty() && planner.kind() == PickleKind::kDict)
      for (std::size_t i = 0; i < planner.size(); i += 2)
        if (planner[i].text()) planner_.emplace(*planner[i].text(), planner[i + 1]);
    std::vector<std::string> out;
    const auto found = planner_.find(key);
    if (found == planner_.end()) return out;
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      const PickleValue part = found->second[i];
      out.push_back(part.text() ? std::string(*part.text()) : std::to_string(part.integer().value_or(0)));
    }
    return out;
  }

  DcpTensor tensor(std::string key, const PickleValue& value) const {
    DcpTensor out;
    out.key = std::move(key);
    out.shape = sizes(field(value, "size"), out.key);
    numel_of(out.shape, path_, out.key);
    const auto properties = field(value, "properties").state();
    check(properties.has_value(), "\"", printable(out.key), "\" has no properties");
    const auto type = properties->kind() == PickleKind::kTuple && properties->size() > 0 ? (*properties)[0].text()
                      : properties->find("dtype") ? properties->find("dtype")->text()
                                                  : std::nullopt;
    const auto dtype = type ? dtype_of(*type) : std::nullopt;
    check(dtype.has_value(), "\"", printable(out.key), "\" has the dtype ", printable(type.value_or("?")),
          ", which is not known");
    out.dtype = *dtype;
    const PickleValue chunks = field(value, "chunks");
    check(chunks.kind() == PickleKind::kList, "the chunks of \"", printable(out.key), "\" are ", chunks.describe());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      DcpChunk chunk{.offsets = sizes(field(chunks[i], "offsets"), out.key),
                     .sizes = sizes(field(chunks[i], "sizes"), out.key),
                     .entry = {}};
      chunk.entry = entry(out.key, chunk.offsets);
      out.chunks.push_back(std::move(chunk));
    }
    return out;
  }

  std::string path_;
  PickleValue root_;
  std::map<std::pair<std::string, std::vector<std::int64_t>>, DcpEntry> entries_;
  mutable std::map<std::string, PickleValue, std::less<>> planner_;
};

}  // namespace

DcpMetadata read_dcp_metadata(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / ".metadata").string();
  std::error_code error;
  INTARSIA_CHECK(kFormat, std::filesystem::exists(path, error), printable(folder),
                 " has no .metadata, which is written last: its save never finished");
  const io::MappedFile map = io::MappedFile::open(path);
  const Pickle pickle = Pickle::read(map.bytes(), path);
  return MetadataReader(pickle.root(), path).run();
}

}  // namespace intarsia::formats
