#include "intarsia/formats/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::json;

// Receives the parser's events and is a small state machine, because a parsed tree would have lost repeated names.
// The parser keeps its own stack on the heap, and deep nesting is refused at the fourth bracket.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  HeaderHandler(const std::string& path, SafetensorsHeader* header) : path_(path), header_(header) {}

  bool null() override { refuse_value("null"); }
  bool boolean(bool) override { refuse_value("a boolean"); }
  bool number_integer(std::int64_t value) override { refuse_value(concat("the negative number ", value)); }
  bool number_float(double, const std::string& text) override {
    refuse_value(concat("the number ", printable(text), " (a plain decimal integer below 2^63 is needed)"));
  }
  bool binary(Json::binary_t&) override { refuse_value("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (state_ != State::kShape && state_ != State::kOffsets) refuse_value(concat("the number ", value));
    if (value >> 63 != 0) refuse_value(concat("the number ", value, " (2^63 or more)"));
    if (state_ == State::kShape) {
      if (tensor_.shape.size() == kMaxDims) refuse(concat("more than ", kMaxDims, " dimensions"));
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
    } else {
      if (num_offsets_ == 2) refuse("data_offsets has more than two numbers");
      (num_offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    }
    return true;
  }

  bool string(std::string& value) override {
    if (state_ == State::kMetadata) {
      if (!header_->metadata.emplace(key_, value).second) refuse(concat("\"", printable(key_), "\" stands twice"));
    } else if (state_ == State::kTensor && key_ == "dtype") {
      const auto dtype = dtype_from_safetensors_name(value);
      if (!dtype) refuse(concat("dtype \"", printable(value), "\" is not supported"));
      tensor_.dtype = *dtype;
      key_.clear();
    } else {
      refuse_value(concat("the text \"", printable(value), "\""));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop) {
      state_ = key_ == "__metadata__" ? State::kMetadata : State::kTensor;
      tensor_ = TensorInfo{.name = key_, .dtype = DType::kF32, .shape = {}, .begin = 0, .end = 0};
      fields_.clear();
      num_offsets_ = 0;
    } else {
      refuse_value("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (std::ranges::find(fields_, field) == fields_.end()) refuse(concat("it has no ", field));
      header_->tensors.push_back(std::move(tensor_));
    }
    state_ = State::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::kTensor || (key_ != "shape" && key_ != "data_offsets")) refuse_value("a list");
    state_ = key_ == "shape" ? State::kShape : State::kOffsets;
    return true;
  }

  bool end_array() override {
    if (state_ == State::kOffsets && num_offsets_ != 2) refuse("data_offsets does not have two numbers");
    state_ = State::kTensor;
    return true;
  }

  bool key(std::string& name) override {
    check_name(name);
    if (state_ == State::kTop) {
      if (!names_.insert(name).second) refuse(concat("the name \"", printable(name), "\" stands twice"));
      if (names_.size() > kMaxTensors + 1) refuse(concat("more than ", kMaxTensors, " tensors"));
    } else if (state_ == State::kTensor) {
      if (name != "dtype" && name != "shape" && name != "data_offsets")
        refuse(concat("unknown field \"", printable(name), "\""));
      if (std::ranges::find(fields_, name) != fields_.end()) refuse(concat("field \"", name, "\" stands twice"));
      fields_.push_back(name);
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    fail(ErrorKind::kFormat, printable(path_), ": the header is not valid JSON at its byte ", position);
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  [[noreturn]] void refuse(const std::string& cause) const {
    std::string where;
    if (state_ == State::kMetadata) where = "__metadata__: ";
    if (state_ >= State::kTensor) where = concat("tensor \"", printable(tensor_.name), "\": ");
    fail(ErrorKind::kFormat, printable(path_), ": ", where, cause);
  }

  [[noreturn]] void refuse_value(const std::string& value) const {
    refuse(concat("\"", printable(key_), "\" cannot be ", value));
  }

  void check_name(const std::string& name) const {
    if (name.size() > kMaxNameBytes)
      refuse(concat("a name of ", name.size(), " bytes (at most ", kMaxNameBytes, "): ", printable(name)));
    for (const char c : name)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
        refuse(concat("a name with a control character: \"", printable(name), "\""));
  }

  const std::string& path_;
  SafetensorsHeader* header_;
  State state_ = State::kStart;
  std::string key_;
  TensorInfo tensor_;
  std::vector<std::string> fields_;  // of the tensor being read
  int num_offsets_ = 0;
  std::unordered_set<std::string> names_;
};

std::string tensor_text(const std::string& path, const TensorInfo& tensor) {
  return concat(printable(path), ": tensor \"", printable(tensor.name), "\"");
}

// The byte range must be what shape and dtype need, all in checked 64-bit arithmetic.
void check_extent(const std::string& path, const TensorInfo& tensor) {
  INTARSIA_CHECK(kFormat, tensor.begin <= tensor.end, tensor_text(path, tensor), ": its bytes end at ", tensor.end,
                 ", before they begin at ", tensor.begin);
  // A zero dimension does not excuse an overflow of the others: a reader that multiplies in order would meet it.
  std::int64_t bytes = static_cast<std::int64_t>(dtype_size(tensor.dtype));
  for (const std::int64_t dim : tensor.shape)
    INTARSIA_CHECK(kFormat, !__builtin_mul_overflow(bytes, dim, &bytes), tensor_text(path, tensor), ": shape ",
                   shape_text(tensor.shape), " has more bytes than 64 bits can count");
  INTARSIA_CHECK(kFormat, static_cast<std::uint64_t>(bytes) == tensor.num_bytes(), tensor_text(path, tensor), ": ",
                 safetensors_name(tensor.dtype), " ", shape_text(tensor.shape), " needs ", bytes,
                 " bytes, data_offsets give it ", tensor.num_bytes());
}

// Sorted tensors must follow each other from byte 0 to the end of the file.
void check_tiling(const std::string& path, const std::vector<TensorInfo>& tensors, std::uint64_t data_bytes) {
  std::uint64_t position = 0;
  const TensorInfo* cut = nullptr;  // the first that the file ends before
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    INTARSIA_CHECK(kFormat, tensor.begin >= position, tensor_text(path, tensor), ": its bytes from ", tensor.begin,
                   " overlap those of \"", printable(tensors[i - 1].name), "\", which end at ", position);
    INTARSIA_CHECK(kFormat, tensor.begin == position, tensor_text(path, tensor), ": ", tensor.begin - position,
                   " bytes before it belong to no tensor");
    position = tensor.end;
    if (cut == nullptr && position > data_bytes) cut = &tensor;
  }
  INTARSIA_CHECK(kFormat, cut == nullptr, tensor_text(path, *cut), ": it has bytes ", cut->begin, " to ", cut->end,
                 ", but the file has ", data_bytes, " data bytes: ", position - data_bytes,
                 " bytes missing; was it copied or downloaded completely?");
  INTARSIA_CHECK(kFormat, position == data_bytes, printable(path), ": ", data_bytes - position,
                 " bytes after the last tensor belong to nothing");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text, std::uint64_t data_bytes) {
  INTARSIA_CHECK(kFormat, text.starts_with('{'), printable(path), ": the header does not begin with '{'");
  // Writers pad with spaces; line ends or anything else behind the object are refused.
  const std::string_view object = text.substr(0, text.find_last_not_of(' ') + 1);
  INTARSIA_CHECK(kFormat, object.ends_with('}'), printable(path),
                 ": the header does not end with '}' and spaces: it is not valid JSON");
  SafetensorsHeader header;
  HeaderHandler handler(path, &header);
  Json::sax_parse(object.begin(), object.end(), &handler);
  for (const TensorInfo& tensor : header.tensors) check_extent(path, tensor);
  std::ranges::sort(header.tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(path, header.tensors, data_bytes);
  return header;
}

}  // namespace intarsia::formats
