#include "intarsia/formats/gguf/gguf_to_hf.h"

#include <filesystem>
#include <map>
#include <system_error>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/float_cast.h"
#include "intarsia/formats/gguf/gguf_config.h"
#include "intarsia/formats/gguf/gguf_tokenizer.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

// The row of the file that is row `row` here. llama.cpp keeps the two halves of a head's rotary pairs one beside the
// other, Hugging Face one after the other.
std::int64_t source_row(const GgufWeight& weight, std::int64_t row) {
  if (weight.interleaved_heads == 0) return row;
  const std::int64_t head_rows = weight.tensor->shape[0] / weight.interleaved_heads, half = head_rows / 2;
  const std::int64_t in_head = row % head_rows;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

class TensorCopier {
 public:
  TensorCopier(const GgufFile& file, DType dtype) : file_(file), dtype_(dtype) {}

  // The bytes of row `row` of a matrix; of a vector all of it.
  std::span<const std::byte> row(const GgufWeight& weight, std::int64_t row) {
    values_.resize(static_cast<std::size_t>(weight.tensor->row_numel()));
    if (weight.tensor->shape.size() > 1) {
      file_.read_row(*weight.tensor, source_row(weight, row), values_.data());
    } else {
      file_.read_row(*weight.tensor, 0, values_.data());
      if (weight.interleaved_heads > 0) {
        const std::vector<float> stored = values_;
        for (std::size_t i = 0; i < stored.size(); ++i)
          values_[i] = stored[static_cast<std::size_t>(source_row(weight, static_cast<std::int64_t>(i)))];
      }
    }
    return narrow(values_, dtype_, halves_);
  }

 private:
  const GgufFile& file_;
  DType dtype_;
  std::vector<float> values_;
  std::vector<std::uint16_t> halves_;
};

void write_weights(const GgufFile& file, const GgufModel& model, const std::string& path, DType dtype,
                   const ConvertProgress& progress) {
  std::vector<TensorDecl> tensors;
  std::map<std::string_view, const GgufWeight*> by_name;
  for (const GgufWeight& weight : model.weights) {
    tensors.push_back({.name = weight.name, .dtype = dtype, .shape = weight.tensor->shape});
    by_name.emplace(weight.name, &weight);
  }
  SafetensorsWriter writer = SafetensorsWriter::create(path, layout_safetensors(std::move(tensors)));
  TensorCopier copier(file, dtype);
  const auto total = static_cast<std::int64_t>(writer.layout().file_bytes - writer.layout().data_begin());
  std::int64_t done = 0;
  for (const TensorInfo& tensor : writer.layout().tensors) {
    const GgufWeight& weight = *by_name.at(tensor.name);
    for (std::int64_t row = 0; row < weight.tensor->num_rows(); ++row) {
      const auto bytes = copier.row(weight, row);
      writer.append(bytes);
      done += static_cast<std::int64_t>(bytes.size());
    }
    if (progress) progress(done, total);
  }
  writer.flush();
  writer.finish();
}

}  // namespace

void gguf_to_hf(const GgufFile& file, const std::string& directory, DType dtype, const ConvertProgress& progress) {
  namespace fs = std::filesystem;
  INTARSIA_CHECK(kUsage, dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16, "weights of dtype ",
                 short_name(dtype), "; allowed are fp32, bf16 and fp16");
  std::error_code error;
  INTARSIA_CHECK(kUsage, !fs::exists(fs::path(directory) / "config.json", error), printable(directory),
                 " has a config.json already; name a folder that is new");
  const GgufModel model = model_of_gguf(file, dtype);
  const TokenizerFiles tokenizer = tokenizer_of_gguf(file);
  fs::create_directories(directory, error);
  if (error) io::fail_io("create the folder", directory, error.value());
  const auto path = [&](const char* name) { return (fs::path(directory) / name).string(); };
  io::write_file_atomic(path("tokenizer.json"), tokenizer.tokenizer);
  io::write_file_atomic(path("tokenizer_config.json"), tokenizer.tokenizer_config);
  io::write_file_atomic(path("config.json"), model.config);
  write_weights(file, model, path("model.safetensors"), dtype, progress);
}

}  // namespace intarsia::formats
