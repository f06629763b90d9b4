#include "intarsia/formats/peers/write_dcp.h"

#include <filesystem>
#include <optional>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/pickle/pickle_writer.h"
#include "intarsia/formats/pickle/torch_writer.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kBody = "__0_0.distcp";

// One value of the nested dict that DCP would have saved. A list's index is an integer there.
struct Key {
  std::string first;                    // "model"
  std::vector<std::string> rest;        // behind it; joined by dots they are the flat key
  std::optional<std::size_t> index_at;  // which of `rest` is a list's index

  std::string flat() const { return concat(first, ".", join(rest, ".")); }
};

struct Entry {
  Key key;
  std::optional<std::vector<std::int64_t>> shape;  // nothing: no tensor
  std::uint64_t begin = 0, bytes = 0;
};

// One folder with its body and its metadata.
class DcpWriter {
 public:
  explicit DcpWriter(std::string folder) : folder_(std::move(folder)), path_((fs::path(folder_) / kBody).string()) {
    std::error_code error;
    INTARSIA_CHECK(kUsage, !fs::exists(fs::path(folder_) / ".metadata", error) && !fs::exists(fs::path(path_), error),
                   printable(folder_), " has a DCP checkpoint already; name a folder that is new");
    fs::create_directories(folder_, error);
    if (error) io::fail_io("create the folder", folder_, error.value());
    fd_ = io::create_exclusive(path_);
  }

  void add_value(Key key, const std::function<void(PickleWriter&)>& value) {
    PickleWriter pickle;
    value(pickle);
    TorchArchiveWriter archive(fd_, path_, at_, pickle.take());
    add(std::move(key), std::nullopt, archive.finish());
  }

  void add_number(Key key, float value) {
    PickleWriter pickle;
    put_tensor(pickle, "0", DType::kF32, {});
    TorchArchiveWriter archive(fd_, path_, at_, pickle.take());
    archive.storage("0", sizeof value);
    archive.append(std::as_bytes(std::span(&value, 1)));
    add(std::move(key), std::vector<std::int64_t>{}, archive.finish());
  }

  void add_tensor(Key key, const LogicalTensor& tensor, const std::vector<std::int64_t>& shape, TensorCopier& copier) {
    PickleWriter pickle;
    put_tensor(pickle, "0", DType::kF32, shape);
    TorchArchiveWriter archive(fd_, path_, at_, pickle.take());
    archive.storage("0", static_cast<std::uint64_t>(tensor.numel()) * sizeof(float));
    copier.copy(tensor, DType::kF32, [&](std::span<const std::byte> bytes) { archive.append(bytes); });
    add(std::move(key), shape, archive.finish());
  }

  // The entry before, under another name too: a tied weight's bytes stand there once.
  void add_again(Key key) {
    Entry entry = entries_.back();
    entry.key = std::move(key);
    entries_.push_back(std::move(entry));
  }

  void finish() {
    io::fsync_file(fd_, path_);
    io::fsync_directory(folder_);
    io::write_file_atomic((fs::path(folder_) / ".metadata").string(), metadata());
  }

 private:
  void add(Key key, std::optional<std::vector<std::int64_t>> shape, std::uint64_t end) {
    entries_.push_back({std::move(key), std::move(shape), at_, end - at_});
    at_ = end;
  }

  static void put_size(PickleWriter& out, const std::vector<std::int64_t>& sizes) {
    out.call("torch", "Size", [&] { out.integers(sizes); });
  }

  // TensorProperties: dtype, layout, requires_grad, memory format, pin_memory. Later versions have strides behind and
  // read the five too.
  static void put_properties(PickleWriter& out) {
    out.object(kMetadataModule, "TensorProperties", [&] {
      out.tuple([&] {
        out.global("torch", "float32");
        out.call("torch.serialization", "_get_layout", [&] { out.text("torch.strided"); });
        out.boolean(false);
        out.call(kMetadataModule, "_MEM_FORMAT_ENCODING", [&] { out.integer(0); });
        out.boolean(false);
      });
    });
  }

  static void put_described(PickleWriter& out, const Entry& entry) {
    if (!entry.shape) return out.object(kMetadataModule, "BytesStorageMetadata", [&] { out.dict([] {}); });
    out.object(kMetadataModule, "TensorStorageMetadata", [&] {
      out.dict([&] {
        out.text("properties");
        put_properties(out);
        out.text("size");
        put_size(out, *entry.shape);
        out.text("chunks");
        out.list([&] {
          out.object(kMetadataModule, "ChunkStorageMetadata", [&] {
            out.dict([&] {
              out.text("offsets");
              put_size(out, std::vector<std::int64_t>(entry.shape->size(), 0));
              out.text("sizes");
              put_size(out, *entry.shape);
            });
          });
        });
      });
    });
  }

  static void put_path(PickleWriter& out, const Key& key) {
    out.tuple([&] {
      out.text(key.first);
      for (std::size_t i = 0; i < key.rest.size(); ++i) {
        if (key.index_at == i) {
          out.integer(std::stoll(key.rest[i]));
        } else {
          out.text(key.rest[i]);
        }
      }
    });
  }

  static void put_place(PickleWriter& out, const Entry& entry) {
    out.object(kMetadataModule, "MetadataIndex", [&] {
      out.dict([&] {
        out.text("fqn");
        out.text(entry.key.flat());
        out.text("index");
        entry.shape ? out.integer(0) : out.none();
        if (!entry.shape) return;
        out.text("offset");
        put_size(out, std::vector<std::int64_t>(entry.shape->size(), 0));
      });
    });
    out.object("torch.distributed.checkpoint.filesystem", "_StorageInfo", [&] {
      out.dict([&] {
        out.text("relative_path");
        out.text(kBody);
        out.text("offset");
        out.integer(static_cast<std::int64_t>(entry.begin));
        out.text("length");
        out.integer(static_cast<std::int64_t>(entry.bytes));
      });
    });
  }

  std::string metadata() const {
    PickleWriter out;
    const auto for_each = [&](const char* name, const std::function<void(const Entry&)>& put) {
      out.text(name);
      out.dict([&] {
        for (const Entry& entry : entries_) put(entry);
      });
    };
    out.object(kMetadataModule, "Metadata", [&] {
      out.dict([&] {
        for_each("state_dict_metadata", [&](const Entry& entry) {
          out.text(entry.key.flat());
          put_described(out, entry);
        });
        for_each("planner_data", [&](const Entry& entry) {
          out.text(entry.key.flat());
          put_path(out, entry.key);
        });
        for_each("storage_data", [&](const Entry& entry) { put_place(out, entry); });
        out.text("storage_meta");
        out.none();
      });
    });
    return out.take();
  }

  std::string folder_, path_;
  io::Fd fd_;
  std::uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

void write_weights(DcpWriter& out, const PeerState& state, TensorCopier& copier) {
  for (const PeerParam& param : state.params) {
    out.add_tensor({"model", {param.name}, {}}, *param.weight, param.shape, copier);
    for (const std::string& other : param.tied_names) out.add_again({"model", {other}, {}});
  }
}

// Every number of a group of torch.optim.Adam and AdamW, as torch 2.15 has them, and initial_lr, which a schedule adds.
void for_each_number(const PeerState& state, const PeerGroup& group,
                     const std::function<void(const char*, const std::function<void(PickleWriter&)>&)>& use) {
  const auto number = [&](const char* name, double value) { use(name, [&](PickleWriter& out) { out.number(value); }); };
  const auto flag = [&](const char* name, bool value) { use(name, [&](PickleWriter& out) { out.boolean(value); }); };
  number("lr", group.lr);
  number("initial_lr", group.initial_lr);
  use("betas", [&](PickleWriter& out) {
    out.tuple([&] {
      out.number(group.beta1);
      out.number(group.beta2);
    });
  });
  number("eps", group.eps);
  number("weight_decay", group.weight_decay);
  for (const char* name : {"amsgrad", "maximize", "capturable", "differentiable"}) flag(name, false);
  for (const char* name : {"foreach", "fused"}) use(name, [](PickleWriter& out) { out.none(); });
  flag("decoupled_weight_decay", state.decoupled_decay);
}

void write_optimizer(DcpWriter& out, const std::string& word, const PeerState& state, TensorCopier& copier) {
  for (const PeerParam& param : state.params) {
    if (param.states.empty()) continue;
    const auto key = [&](const std::string& field) { return Key{word, {"state", param.name, field}, {}}; };
    out.add_number(key("step"), static_cast<float>(state.updates));
    for (const auto& [kind, tensor] : param.states) out.add_tensor(key(kind), *tensor, param.shape, copier);
  }
  for (std::size_t index = 0; index < state.groups.size(); ++index) {
    const PeerGroup& group = state.groups[index];
    const auto key = [&](const char* field) { return Key{word, {"param_groups", std::to_string(index), field}, 1}; };
    for_each_number(state, group, [&](const char* field, const auto& value) { out.add_value(key(field), value); });
    out.add_value(key("params"), [&](PickleWriter& pickle) {
      pickle.list([&] {
        for (const std::size_t param : group.params) pickle.text(state.params[param].name);
      });
    });
    for (const std::size_t param : group.params)
      for_each_number(state, group, [&](const char* field, const auto& value) {
        out.add_value({word, {concat("param_groups.", state.params[param].name, ".", field)}, {}}, value);
      });
  }
}

}  // namespace

std::int64_t num_elements(const PeerState& state) {
  std::int64_t out = 0;
  for (const PeerParam& param : state.params) {
    out += param.weight->numel();
    for (const auto& [kind, tensor] : param.states) out += tensor->numel();
  }
  return out;
}

void write_dcp(const LogicalCheckpoint& checkpoint, const std::string& directory, const PeerState& state,
               DcpLayout layout, const WriteProgress& progress) {
  TensorCopier copier(checkpoint, progress);
  copier.expect(num_elements(state) * static_cast<std::int64_t>(sizeof(float)));
  const bool apart = layout == DcpLayout::kAccelerate;
  const auto folder = [&](const char* name) { return (fs::path(directory) / name).string(); };
  DcpWriter weights(apart ? folder("pytorch_model_fsdp_0") : directory);
  write_weights(weights, state, copier);
  if (!state.groups.empty() && apart) {
    DcpWriter optimizer(folder("optimizer_0"));
    write_optimizer(optimizer, "optimizer", state, copier);
    optimizer.finish();
  }
  if (!state.groups.empty() && !apart) write_optimizer(weights, "optim", state, copier);
  weights.finish();
}

}  // namespace intarsia::formats
