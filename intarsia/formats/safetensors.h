// Reader of safetensors files. Files are untrusted: nothing is mapped or allocated before the header agrees with the
// file's size; docs/formats/safetensors.md lists what is accepted.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "intarsia/formats/tensor_file.h"

namespace intarsia::formats {

// An open file. Invariant: the tensors tile the data without overlap or hole, and the data end with the file.
class SafetensorsFile : public TensorFile {
 public:
  // Memory: the header (at most 100 MB and never more than the file) while it is read, then the list of tensors.
  // Errors: kIo; kFormat with the file, the tensor and the cause.
  static SafetensorsFile open(const std::string& path);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile(TensorFile file, std::map<std::string, std::string> metadata)
      : TensorFile(std::move(file)), metadata_(std::move(metadata)) {}

  std::map<std::string, std::string> metadata_;
};

}  // namespace intarsia::formats
