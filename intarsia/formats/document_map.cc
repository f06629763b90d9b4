#include "intarsia/formats/document_map.h"

#include <cstring>
#include <span>

#include "intarsia/base/error.h"
#include "intarsia/formats/safetensors.h"
#include "intarsia/formats/safetensors_writer.h"

namespace intarsia::formats {
namespace {

constexpr const char* kEnds = "document_ends";
constexpr const char* kTrained = "trained";

std::vector<std::int64_t> read_integers(const SafetensorsFile& file, const TensorInfo& tensor, std::size_t dims) {
  INTARSIA_CHECK(kFormat,
                 tensor.dtype == DType::kI64 && tensor.shape.size() == dims && (dims == 1 || tensor.shape[1] == 2),
                 file.path(), ": \"", tensor.name, "\" must be I64 ", dims == 1 ? "[D]" : "[R, 2]", ", found ",
                 safetensors_name(tensor.dtype), " ", shape_text(tensor.shape));
  std::vector<std::int64_t> out(static_cast<std::size_t>(tensor.numel()));
  if (!out.empty()) std::memcpy(out.data(), file.bytes(tensor).data(), out.size() * sizeof(std::int64_t));
  return out;
}

}  // namespace

void DocumentMap::add(std::int64_t count, const std::vector<bool>& marks) {
  const std::int64_t begin = num_tokens();
  if (!marks.empty() && !trained) {
    trained.emplace();
    if (begin > 0) trained->push_back({0, begin});  // the documents so far
  }
  ends.push_back(begin + count);
  if (!trained) return;
  const auto extend = [&](std::int64_t from, std::int64_t to) {
    if (!trained->empty() && trained->back().end == from) {
      trained->back().end = to;
    } else {
      trained->push_back({from, to});
    }
  };
  if (marks.empty() && count > 0) extend(begin, begin + count);
  for (std::size_t i = 0; i < marks.size(); ++i)
    if (marks[i]) extend(begin + static_cast<std::int64_t>(i), begin + static_cast<std::int64_t>(i) + 1);
}

std::string document_map_path(const std::string& token_path) { return token_path + ".documents"; }

DocumentMap read_document_map(const std::string& path, std::int64_t num_tokens) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  DocumentMap map;
  map.ends = read_integers(file, file.at(kEnds), 1);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < map.ends.size(); ++i) {
    INTARSIA_CHECK(kFormat, map.ends[i] >= before, path, ": document ", i, " ends at token ", map.ends[i],
                   ", before it begins (", before, ")");
    before = map.ends[i];
  }
  INTARSIA_CHECK(kFormat, before == num_tokens, path, ": its documents end at token ", before, ", the token file has ",
                 num_tokens, "; the two do not belong together; tokenize again");
  const TensorInfo* trained = file.find(kTrained);
  if (trained == nullptr) return map;
  const std::vector<std::int64_t> runs = read_integers(file, *trained, 2);
  map.trained.emplace();
  before = 0;
  for (std::size_t i = 0; i < runs.size(); i += 2) {
    INTARSIA_CHECK(kFormat, runs[i] >= before && runs[i] < runs[i + 1] && runs[i + 1] <= num_tokens, path, ": run ",
                   i / 2, " of trained tokens is ", runs[i], " to ", runs[i + 1], ", behind ", before, " and of ",
                   num_tokens, " tokens");
    map.trained->push_back({runs[i], runs[i + 1]});
    before = runs[i + 1];
  }
  return map;
}

void write_document_map(const std::string& path, const DocumentMap& map) {
  std::vector<TensorDecl> tensors = {
      {.name = kEnds, .dtype = DType::kI64, .shape = {static_cast<std::int64_t>(map.ends.size())}}};
  std::vector<std::int64_t> runs;
  if (map.trained) {
    for (const TokenRange& run : *map.trained) runs.insert(runs.end(), {run.begin, run.end});
    tensors.push_back(
        {.name = kTrained, .dtype = DType::kI64, .shape = {static_cast<std::int64_t>(map.trained->size()), 2}});
  }
  SafetensorsWriter writer = SafetensorsWriter::create(path, layout_safetensors(std::move(tensors)));
  const std::size_t ends = writer.layout().index_of(kEnds);
  writer.write_at(ends, 0, std::as_bytes(std::span(map.ends)));
  if (map.trained) writer.write_at(writer.layout().index_of(kTrained), 0, std::as_bytes(std::span(runs)));
  writer.flush();
  writer.finish();
}

}  // namespace intarsia::formats
