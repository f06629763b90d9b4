#include "targets.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"
#include "intarsia/checkpoint/manifest.h"
#include "intarsia/config/resolve.h"
#include "intarsia/formats/gguf/gguf.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/formats/indexed_dataset.h"
#include "intarsia/formats/model_directory.h"
#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/formats/pickle/pickle.h"
#include "intarsia/formats/pickle/torch_file.h"
#include "intarsia/formats/pickle/zip_file.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/formats/tokenizer.h"
#include "intarsia/formats/yaml.h"
#include "intarsia/io/file.h"

namespace intarsia::fuzz {
namespace {

namespace fs = std::filesystem;

// A file in memory for readers that take a path.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("input", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {}
  const std::string& hold(const std::string& bytes) {
    if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      std::abort();
    return path_;
  }

 private:
  int fd_;
  std::string path_;
};

// A folder that goes with the process.
class Folder {
 public:
  Folder() {
    const fs::path place = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string pattern = (place / "intarsia-fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
    return path_ + "/" + name;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::span<const std::byte> span_of(const std::string& bytes) { return io::as_bytes(bytes); }

std::string safetensors(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size() & 0xff);
  bytes[1] = static_cast<char>(header.size() >> 8);
  return bytes + header + std::string(data_bytes, '\1');
}

void walk(const formats::TorchArchive& archive, const formats::PickleValue& value, int depth) {
  if (const auto tensor = archive.tensor(value)) {
    if (tensor->is_contiguous()) archive.bytes(*tensor);
    return;
  }
  if (depth == 0) return;
  for (std::size_t i = 0; i < value.size() && i < 100; ++i) walk(archive, value[i], depth - 1);
}

// A manifest whose checksum fits, so that what stands in it is looked at. Every other input keeps its own.
void parse_manifest(const std::string& bytes) {
  std::string text = bytes;
  const std::string marker = ",\n\"crc32c\": \"";
  const std::size_t tail = text.rfind(marker);
  if (tail != std::string::npos && bytes.size() % 8 != 0) {
    text.resize(tail);
    text += marker + crc32c_text(crc32c(io::as_bytes(text))) + "\"}\n";
  }
  checkpoint::parse_manifest(text, "manifest.json");
}

std::string example_manifest() {
  checkpoint::Manifest manifest;
  manifest.progress = {.step = 12, .updates = 11, .data_position = 384, .tokens = 5000, .seed = 7};
  manifest.progress.loss_scale = optim::LossScaleState{};
  manifest.progress.loss_scale->scale = 65536;
  manifest.progress.not_reproducible_since = 4;
  manifest.logical_micro_batches = 8;
  manifest.files = {{checkpoint::body_name(0), 100, {0xdeadbeef}},
                    {checkpoint::body_name(1), checkpoint::kBlockBytes + 1, {1, 2}}};
  manifest.tensors = {{.name = "a", .shape = {2, 3}, .pieces = {{0, {0, 4}}, {1, {4, 6}}}},
                      {.name = "b", .kind = checkpoint::TensorKind::kWeight, .dtype = DType::kBF16, .shape = {0, 3}}};
  manifest.config = "{\"key\": 1}\n";
  manifest.model_config = "{}";
  manifest.versions = {{"libtorch", "2"}};
  return checkpoint::manifest_text(manifest);
}

// Of the three of tests/fixtures/checkpoints/indexed with 16-, 32- and 64-bit tokens.
std::vector<std::uint64_t> token_file_sizes() {
  static const std::vector<std::uint64_t> kSizes = [] {
    std::vector<std::uint64_t> sizes;
    for (const char* name : {"u16", "i32", "i64"})
      sizes.push_back(fs::file_size(concat("tests/fixtures/checkpoints/indexed/", name, "_text_document.bin")));
    return sizes;
  }();
  return kSizes;
}

const std::vector<std::string> kJsonWords = {"{",
                                             "}",
                                             "[",
                                             "]",
                                             "\"",
                                             ":",
                                             ",",
                                             "null",
                                             "true",
                                             "\\u0000",
                                             "\\ud800",
                                             "1e999",
                                             "-1",
                                             "[[[[[[[[",
                                             "{\"\":",
                                             "\xff",
                                             "9007199254740993"};
const std::string kFixtures = "tests/fixtures/";

}  // namespace

std::vector<Target> make_targets() {
  const auto file = std::make_shared<MemoryFile>();
  const auto folder = std::make_shared<Folder>();
  const auto tokenizer_folder = std::make_shared<Folder>();
  std::vector<Target> targets;

  targets.push_back(
      {.name = "safetensors",
       .run =
           [file](const std::string& bytes) {
             const auto found = formats::SafetensorsFile::open(file->hold(bytes));
             for (const auto& tensor : found.tensors()) found.bytes(tensor);
           },
       .words = {"\"dtype\":\"F32\"", "\"shape\":[", "\"data_offsets\":[0,", "\"__metadata__\":{", "BF16", "F8_E4M3",
                 "BOOL", "{", "}", ",", "\"a\":"},
       .seeds = {safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                             "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[8,10]}}",
                             10),
                 safetensors("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"I64\",\"shape\":[0,3]"
                             ",\"data_offsets\":[0,0]}}",
                             0)},
       .files = {kFixtures + "checkpoints/malformed", kFixtures + "checkpoints/dcp"},
       .endings = {".safetensors"},
       .share = 2});
  targets.push_back({.name = "manifest",
                     .run = parse_manifest,
                     .words = {"\"name\": ", "\"kind\": \"master\"", "\"pieces\": [", "[0,0,1]", "\"shape\": [", "BF16",
                               "\"blocks\": \"", "rank-00002.safetensors", "\"loss_scale\": {", "[[[[[[[["},
                     .seeds = {example_manifest()}});
  targets.push_back({.name = "index",
                     .run =
                         [folder](const std::string& bytes) {
                           folder->file("model.safetensors.index.json", bytes);
                           formats::ModelDirectory::open(folder->path());
                         },
                     .words = kJsonWords,
                     .seeds = {"{\"metadata\": {\"total_size\": 8}, \"weight_map\": {\"a\": \"m-1.safetensors\"}}",
                               "{\"weight_map\": {\"a\": \"../x/m.safetensors\", \"b\": \"/etc/hostname\"}}"},
                     .files = {kFixtures + "checkpoints/malformed", kFixtures + "hf/mistral-full"},
                     .endings = {".index.json"},
                     .share = 0.2});
  folder->file("m-1.safetensors", safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8));
  targets.push_back(
      {.name = "zip",
       .run =
           [](const std::string& bytes) {
             const auto archive = formats::TorchArchive::read(span_of(bytes), "input");
             walk(archive, archive.root(), 4);
           },
       .words = {"PK\3\4", "PK\1\2", "PK\5\6", "PK\6\6", "PK\6\7", "data.pkl", "version", "byteorder"},
       .files = {kFixtures + "checkpoints/malformed", kFixtures + "checkpoints/deepspeed/z2-w2-gas-decay/universal"},
       .endings = {".pt"}});
  targets.push_back(
      {.name = "pickle",
       .run = [](const std::string& bytes) { formats::Pickle::read(span_of(bytes), "input"); },
       .words = {"ctorch._utils\n_rebuild_tensor_v2\n",
                 "ccollections\nOrderedDict\n",
                 "cos\nsystem\n",
                 "\x80\2",
                 "q\1",
                 "h\1",
                 "r\xff\xff\xff\xff",
                 "(",
                 ")",
                 "R",
                 "b",
                 "\x85",
                 "\x86",
                 "\x87",
                 "]",
                 "}",
                 "u",
                 "s",
                 "a",
                 "e",
                 "Q",
                 "K\1",
                 "M\1\1",
                 "J\xff\xff\xff\x7f",
                 "X\5",
                 "\x8a\x08",
                 "."},
       .files = {kFixtures + "checkpoints/malformed", kFixtures + "checkpoints/deepspeed/z2-w2-gas-decay/universal",
                 kFixtures + "checkpoints/dcp"},
       .endings = {".pt#pickle", ".metadata"},
       .share = 2});
  // Beside the files that one of the seeds means.
  const auto dcp = std::make_shared<Folder>();
  for (const char* name : {"__0_0.distcp", "__1_0.distcp"})
    fs::copy_file(kFixtures + "checkpoints/dcp/accelerate-fsdp2-w2/ckpt/pytorch_model_fsdp_0/" + name,
                  dcp->path() + "/" + name);
  targets.push_back({.name = "dcp",
                     .run =
                         [dcp](const std::string& bytes) {
                           dcp->file(".metadata", bytes);
                           formats::open_checkpoint(dcp->path());
                         },
                     .words = {"__0_0.distcp", "../", "K\1", "M\1\1", "J\xff\xff\xff\x7f", "\x8a\x08", "\x85", "\x86"},
                     .files = {kFixtures + "checkpoints/dcp/accelerate-fsdp2-w2", kFixtures + "checkpoints/malformed"},
                     .endings = {".metadata"},
                     .share = 0.5});
  targets.push_back({.name = "idx",
                     .run =
                         [file](const std::string& bytes) {
                           // The sizes of the fixtures' token files: each input meets each of them.
                           int refused = 0;
                           for (const std::uint64_t token_bytes : token_file_sizes()) {
                             try {
                               formats::read_indexed_dataset(file->hold(bytes), token_bytes);
                             } catch (const Error& error) {
                               if (error.kind() == ErrorKind::kInternal || ++refused == 3) throw;
                             }
                           }
                         },
                     .words = {"MMIDIDX\0\0"},
                     .files = {kFixtures + "checkpoints/indexed", kFixtures + "checkpoints/malformed"},
                     .endings = {".idx"}});
  targets.push_back(
      {.name = "tokenizer",
       .run =
           [file](const std::string& bytes) {
             const formats::Tokenizer tokenizer = formats::Tokenizer::load(file->hold(bytes));
             tokenizer.decode(tokenizer.encode("Hello, \xc3\xa9 world 123", true), true);
           },
       .words = {"\"type\": \"BPE\"", "\"vocab\": {", "\"merges\": [", "\"added_tokens\": [", "ByteLevel", "Sequence",
                 "Split", "\"Regex\": \"", "\\\\p{L}", "(?i:", "(((((", "[^", "{1,3}", "\"id\": ", "\xc4\xa0"},
       .seeds =
           {R"({"version": "1.0", "added_tokens": [{"id": 6, "content": "<s>", "special": true}], "normalizer": null,
"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
"post_processor": null, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"H": 0, "e": 1, "l": 2, "o": 3, "ll":
4, "He": 5}, "merges": ["l l", "H e"]}})"},
       .files = {kFixtures + "hf/gpt2-hub/model", kFixtures + "hf/llama-tied/model"},
       .endings = {"tokenizer.json"},
       .share = 0.3});
  targets.push_back({.name = "deepspeed",
                     .run =
                         [](const std::string& bytes) {
                           config::ResolveInput input;
                           input.file = "ds.json";
                           input.text = bytes.empty() ? " " : bytes;
                           input.ranks = 2;
                           config::check_trainable(config::resolve(input));
                         },
                     .words = kJsonWords,
                     .files = {kFixtures + "configs/deepspeed", kFixtures + "configs/invalid"},
                     .endings = {".json"},
                     .share = 0.5});
  targets.push_back({.name = "yaml",
                     .run = [](const std::string& bytes) { formats::parse_yaml(bytes, "accelerate.yaml"); },
                     .words = {": ", "- ", "'", "\"", "#", "[", "]", "---", "\n  ", "fsdp_config:", "null"},
                     .files = {kFixtures + "configs/accelerate", kFixtures + "configs/invalid"},
                     .endings = {".yaml"},
                     .share = 0.5});
  targets.push_back({.name = "hf-config",
                     .run = [](const std::string& bytes) { formats::parse_hf_config(bytes, "config.json"); },
                     .words = kJsonWords,
                     .files = {kFixtures + "hf"},
                     .endings = {"config.json"}});
  targets.push_back({.name = "gguf",
                     .run =
                         [file](const std::string& bytes) {
                           const auto found = formats::GgufFile::open(file->hold(bytes));
                           std::vector<float> row;
                           for (const auto& tensor : found.tensors()) {
                             row.resize(static_cast<std::size_t>(std::min<std::int64_t>(tensor.row_numel(), 1 << 16)));
                             if (tensor.row_numel() == static_cast<std::int64_t>(row.size()) && tensor.num_rows() > 0)
                               found.read_row(tensor, 0, row.data());
                           }
                         },
                     .words = {"GGUF", "general.alignment", "general.architecture"},
                     .files = {kFixtures + "gguf"},
                     .endings = {".gguf"},
                     .share = 0.3});
  return targets;
}

}  // namespace intarsia::fuzz
