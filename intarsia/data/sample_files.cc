#include "intarsia/data/sample_files.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/safetensors.h"

namespace intarsia::data {
namespace {

constexpr std::int64_t kCheckedAtOpen = std::int64_t{1} << 24;

// A matrix of integers in a mapped file.
struct Matrix {
  std::span<const std::byte> bytes;
  bool wide = false;  // int64, else int32

  std::int64_t at(std::int64_t element) const {
    // The writer may have left the tensor unaligned.
    if (wide) {
      std::int64_t value = 0;
      std::memcpy(&value, bytes.data() + element * 8, sizeof value);
      return value;
    }
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data() + element * 4, sizeof value);
    return value;
  }
};

struct SampleFile {
  formats::SafetensorsFile file;
  Matrix ids;
  std::optional<Matrix> labels;
  std::int64_t begin = 0;  // index of its first sample in the data set
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

Matrix matrix_of(const formats::SafetensorsFile& file, const formats::TensorInfo& tensor) {
  INTARSIA_CHECK(kFormat, tensor.dtype == DType::kI32 || tensor.dtype == DType::kI64, file.path(), ": ", tensor.name,
                 " has dtype ", safetensors_name(tensor.dtype), "; samples are I32 or I64");
  return {file.bytes(tensor), tensor.dtype == DType::kI64};
}

SampleFile open_one(const std::string& path) {
  auto file = formats::SafetensorsFile::open(path);
  const formats::TensorInfo* ids = file.find("input_ids");
  INTARSIA_CHECK(kFormat, ids != nullptr, path,
                 ": no tensor input_ids; a file of ready samples has input_ids [N, S] and optionally labels [N, S]");
  INTARSIA_CHECK(kFormat, ids->shape.size() == 2, path, ": input_ids has shape ", formats::shape_text(ids->shape),
                 "; ready samples are [N, S], one sample a row");
  INTARSIA_CHECK(kData, ids->shape[0] == 0 || ids->shape[1] >= 2, path, ": input_ids has shape ",
                 formats::shape_text(ids->shape), "; a sample needs 2 tokens or more, as one predicts the next");
  const formats::TensorInfo* labels = file.find("labels");
  INTARSIA_CHECK(kFormat, labels == nullptr || labels->shape == ids->shape, path, ": labels has shape ",
                 formats::shape_text(labels->shape), ", input_ids ", formats::shape_text(ids->shape),
                 "; they must be equal");
  SampleFile sample_file{
      .file = std::move(file), .ids = {}, .labels = {}, .rows = ids->shape[0], .columns = ids->shape[1]};
  sample_file.ids = matrix_of(sample_file.file, *ids);
  if (labels != nullptr) sample_file.labels = matrix_of(sample_file.file, *labels);
  return sample_file;
}

class SampleFiles : public Dataset {
 public:
  SampleFiles(const std::vector<std::string>& paths, std::int64_t vocab_size) : vocab_size_(vocab_size) {
    for (const std::string& path : paths) {
      SampleFile file = open_one(path);
      if (file.rows == 0) continue;
      INTARSIA_CHECK(kConfig, files_.empty() || file.columns == files_.front().columns, path, " has samples of ",
                     file.columns, " tokens, ", files_.front().file.path(), " of ", files_.front().columns,
                     "; files of one length only can be joined");
      file.begin = num_samples_;
      num_samples_ += file.rows;
      summary_.tokens += file.rows * file.columns;
      files_.push_back(std::move(file));
    }
    summary_.files = static_cast<std::int64_t>(paths.size());
    INTARSIA_CHECK(kData, num_samples_ > 0, join(paths), ": no samples; input_ids needs one row or more");
    if (summary_.tokens <= kCheckedAtOpen) check_all();
  }

  std::int64_t num_samples() const override { return num_samples_; }
  std::int64_t seq_len() const override { return files_.front().columns; }
  const DataSummary& summary() const override { return summary_; }

  void fill(std::int64_t index, std::int64_t* ids, std::int64_t* labels) const override {
    INTARSIA_INVARIANT(index >= 0 && index < num_samples_, "sample ", index, " of ", num_samples_);
    const auto after = std::upper_bound(files_.begin(), files_.end(), index,
                                        [](std::int64_t i, const SampleFile& file) { return i < file.begin; });
    const SampleFile& file = *(after - 1);
    const std::int64_t row = index - file.begin, first = row * file.columns;
    for (std::int64_t i = 0; i < file.columns; ++i) {
      ids[i] = file.ids.at(first + i);
      if (!is_token(ids[i])) refuse(file, "input_ids", row, i, ids[i]);
      labels[i] = file.labels ? file.labels->at(first + i) : ids[i];
      if (labels[i] != kNotCounted && !is_token(labels[i])) refuse(file, "labels", row, i, labels[i]);
    }
  }

 private:
  bool is_token(std::int64_t id) const { return id >= 0 && (vocab_size_ == 0 || id < vocab_size_); }

  [[noreturn]] void refuse(const SampleFile& file, const char* tensor, std::int64_t row, std::int64_t column,
                           std::int64_t value) const {
    fail(ErrorKind::kData, file.file.path(), ": ", tensor, "[", row, ", ", column, "] is ", value,
         "; allowed are 0 to ", (vocab_size_ == 0 ? std::numeric_limits<std::int32_t>::max() : vocab_size_ - 1),
         vocab_size_ == 0 ? "" : concat(" (the model has a vocabulary of ", vocab_size_, ")"),
         tensor[0] == 'l' ? concat(" and ", kNotCounted, " for not counted") : "");
  }

  void check_all() const {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(seq_len())), labels(ids.size());
    for (std::int64_t i = 0; i < num_samples_; ++i) fill(i, ids.data(), labels.data());
  }

  std::vector<SampleFile> files_;
  std::int64_t vocab_size_;
  std::int64_t num_samples_ = 0;
  DataSummary summary_;
};

}  // namespace

std::unique_ptr<Dataset> open_sample_files(const std::vector<std::string>& paths, std::int64_t vocab_size) {
  return std::make_unique<SampleFiles>(paths, vocab_size);
}

}  // namespace intarsia::data
