#include "intarsia/formats/pickle/torch_file.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

constexpr std::size_t kMaxDims = 16;
constexpr std::uint64_t kMaxPickleBytes = std::uint64_t{1} << 30;

struct StorageType {
  std::string_view name;
  DType dtype;
};
constexpr StorageType kStorages[] = {
    {"torch.FloatStorage", DType::kF32},     {"torch.DoubleStorage", DType::kF64}, {"torch.HalfStorage", DType::kF16},
    {"torch.BFloat16Storage", DType::kBF16}, {"torch.LongStorage", DType::kI64},   {"torch.IntStorage", DType::kI32},
    {"torch.ShortStorage", DType::kI16},     {"torch.CharStorage", DType::kI8},    {"torch.ByteStorage", DType::kU8},
    {"torch.BoolStorage", DType::kBool},
};

}  // namespace

std::int64_t TorchTensor::numel() const {
  std::int64_t out = 1;
  for (const std::int64_t size : shape) out *= size;
  return out;
}

bool TorchTensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

TorchArchive TorchArchive::read(std::span<const std::byte> bytes, std::string name, RecordCheck check) {
  TorchArchive out(bytes, std::move(name));
  INTARSIA_CHECK(
      kUnsupported, bytes.size() < 4 || std::memcmp(bytes.data(), "PK\3\4", 4) == 0, printable(out.name_),
      ": this is no zip archive; files of torch.save from before PyTorch 1.6, and bare pickles, are not read; "
      "load and save it once with a newer torch");
  std::string pickle_name;
  for (ZipRecord& record : read_zip_directory(bytes, out.name_)) {
    if (record.name.ends_with("/data.pkl")) {
      INTARSIA_CHECK(kFormat, pickle_name.empty(), printable(out.name_), " has two pickles");
      pickle_name = record.name;
    }
    if (check == RecordCheck::kAll || record.name.find("/data/") == record.name.npos)
      check_zip_record(bytes, record, out.name_);
    std::string key = record.name;
    out.records_.emplace(std::move(key), std::move(record));
  }
  INTARSIA_CHECK(kFormat, !pickle_name.empty(), printable(out.name_),
                 ": no record data.pkl; this is no file of torch.save");
  out.prefix_ = pickle_name.substr(0, pickle_name.size() - std::string_view("data.pkl").size());
  const auto order = out.records_.find(out.prefix_ + "byteorder");
  if (order != out.records_.end()) {
    const auto text = bytes.subspan(order->second.begin, order->second.size);
    INTARSIA_CHECK(kUnsupported, text.size() == 6 && std::memcmp(text.data(), "little", 6) == 0, printable(out.name_),
                   ": byte order other than little is not supported");
  }
  const ZipRecord& record = out.records_.at(pickle_name);
  INTARSIA_CHECK(kFormat, record.size <= kMaxPickleBytes, printable(out.name_), ": a pickle of ", record.size,
                 " bytes, allowed are ", kMaxPickleBytes);
  out.pickle_ = std::make_shared<const Pickle>(Pickle::read(bytes.subspan(record.begin, record.size), out.name_));
  return out;
}

std::optional<TorchTensor> TorchArchive::tensor(const PickleValue& value) const {
  const std::string_view name = value.class_name();
  const auto inner = [&](std::size_t i) {
    INTARSIA_CHECK(kFormat, value.arguments().size() > i, printable(name_), ": ", name, " with ",
                   value.arguments().size(), " arguments");
    return value.arguments()[i];
  };
  if (name == "torch._utils._rebuild_tensor_v2") return rebuilt(value.arguments());
  if (name == "torch._utils._rebuild_parameter") return tensor(inner(0));
  if (name == "torch._tensor._rebuild_from_type_v2") {  // (function, type, its arguments, state)
    const PickleValue function = inner(0);
    if (function.text() == "torch._utils._rebuild_tensor_v2") return rebuilt(inner(2));
    if (function.text() == "torch._utils._rebuild_parameter" && inner(2).size() > 0) return tensor(inner(2)[0]);
  }
  return std::nullopt;
}

// (storage, offset, size, stride, requires_grad, hooks).
TorchTensor TorchArchive::rebuilt(const PickleValue& arguments) const {
  const auto refuse = [&](const auto&... parts) {
    fail(ErrorKind::kFormat, printable(name_), ": a tensor ", parts...);
  };
  if (arguments.kind() != PickleKind::kTuple || arguments.size() < 4)
    refuse("without storage, offset, size and stride");
  TorchTensor out;
  std::int64_t storage_numel = 0;
  const std::uint64_t storage = place_storage(arguments[0], out, storage_numel);
  const auto offset = arguments[1].integer();
  if (!offset || *offset < 0) refuse("with the offset ", offset.value_or(0), " in its storage");
  const auto sizes = [&](const PickleValue& value, const char* what) {
    const PickleValue list =
        value.class_name() == "torch.Size" && value.arguments().size() == 1 ? value.arguments()[0] : value;
    if ((list.kind() != PickleKind::kTuple && list.kind() != PickleKind::kList) || list.size() > kMaxDims)
      refuse("whose ", what, " is ", value.describe(), ", expected up to ", kMaxDims, " numbers");
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto number = list[i].integer();
      if (!number || *number < 0)
        refuse("whose ", what, " has the entry ", number ? std::to_string(*number) : list[i].describe());
      numbers.push_back(*number);
    }
    return numbers;
  };
  out.shape = sizes(arguments[2], "size");
  out.strides = sizes(arguments[3], "stride");
  if (out.shape.size() != out.strides.size())
    refuse("with ", out.shape.size(), " sizes and ", out.strides.size(), " strides");
  std::int64_t numel = 1, last = *offset;  // elements; the place of the last one in the storage
  for (std::size_t i = 0; i < out.shape.size(); ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(numel, out.shape[i], &numel) ||
        (out.shape[i] > 0 && (__builtin_mul_overflow(out.shape[i] - 1, out.strides[i], &reach) ||
                              __builtin_add_overflow(last, reach, &last))))
      refuse(shape_text(out.shape), " with strides ", shape_text(out.strides), ", beyond 64 bits");
  }
  if (numel > 0 && last >= storage_numel)
    refuse(shape_text(out.shape), " with strides ", shape_text(out.strides), " from element ", *offset,
           " reaches element ", last, " of a storage of ", storage_numel);
  // An empty tensor reads nothing, wherever it begins.
  out.begin = storage + (numel > 0 ? static_cast<std::uint64_t>(*offset) * dtype_size(out.dtype) : 0);
  return out;
}

// ("storage", its class, its key, its device, its number of elements).
std::uint64_t TorchArchive::place_storage(const PickleValue& persistent, TorchTensor& tensor,
                                          std::int64_t& numel) const {
  INTARSIA_CHECK(kFormat,
                 persistent.kind() == PickleKind::kPersistent && persistent[0].kind() == PickleKind::kTuple &&
                     persistent[0].size() == 5 && persistent[0][0].text() == "storage" && persistent[0][2].text() &&
                     persistent[0][4].integer(),
                 printable(name_), ": a tensor whose storage is ", persistent.describe());
  const PickleValue id = persistent[0];
  const std::string type(id[1].text().value_or(""));
  const auto known =
      std::find_if(std::begin(kStorages), std::end(kStorages), [&](const StorageType& s) { return s.name == type; });
  INTARSIA_CHECK(kUnsupported, known != std::end(kStorages), printable(name_), ": a storage of the type ",
                 printable(type.empty() ? id[1].describe() : type), " is not supported");
  tensor.dtype = known->dtype;
  numel = *id[4].integer();
  const auto record = records_.find(concat(prefix_, "data/", *id[2].text()));
  INTARSIA_CHECK(kFormat, record != records_.end(), printable(name_), ": there is no record for the storage ",
                 printable(*id[2].text()));
  const std::uint64_t room = record->second.size / dtype_size(tensor.dtype);
  INTARSIA_CHECK(kFormat, numel >= 0 && static_cast<std::uint64_t>(numel) <= room, printable(name_), ": the storage ",
                 printable(*id[2].text()), " is said to have ", numel, " elements, its record holds ", room);
  return record->second.begin;
}

std::span<const std::byte> TorchArchive::bytes(const TorchTensor& tensor) const {
  INTARSIA_CHECK(kUnsupported, tensor.is_contiguous(), printable(name_), ": a tensor ", shape_text(tensor.shape),
                 " with strides ", shape_text(tensor.strides),
                 ", not row-major, is not supported; save it with .contiguous()");
  return bytes_.subspan(tensor.begin, static_cast<std::size_t>(tensor.numel()) * dtype_size(tensor.dtype));
}

TensorFile open_torch_weights(const std::string& path) {
  io::MappedFile file = io::MappedFile::open(path);
  const TorchArchive archive = TorchArchive::read(file.bytes(), path);
  const PickleValue root = archive.root();
  INTARSIA_CHECK(kFormat, root.kind() == PickleKind::kDict, printable(path), ": holds ", root.describe(),
                 ", expected a dict of name to tensor");
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < root.size(); i += 2) {
    const auto name = root[i].kind() == PickleKind::kText ? root[i].text() : std::nullopt;
    const auto tensor = archive.tensor(root[i + 1]);
    INTARSIA_CHECK(kFormat, name && tensor, printable(path), ": the entry ",
                   name ? printable(*name) : root[i].describe(), " is ", root[i + 1].describe(),
                   ", expected a dict of name to tensor");
    INTARSIA_CHECK(kFormat, names.insert(*name).second, printable(path), ": the tensor ", printable(*name),
                   " comes twice");
    INTARSIA_CHECK(kUnsupported, tensor->is_contiguous(), printable(path), ": the tensor ", printable(*name), " ",
                   shape_text(tensor->shape), " with strides ", shape_text(tensor->strides),
                   ", not row-major, is not supported; save it with .contiguous()");
    const std::uint64_t bytes = static_cast<std::uint64_t>(tensor->numel()) * dtype_size(tensor->dtype);
    tensors.push_back({std::string(*name), tensor->dtype, tensor->shape, tensor->begin, tensor->begin + bytes});
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) { return a.begin < b.begin; });
  return TensorFile(std::move(file), 0, std::move(tensors));
}

}  // namespace intarsia::formats
