// Initial weights from a Hugging Face model directory.
#pragma once

#include <string>
#include <unordered_map>

#include "intarsia/formats/model_directory.h"
#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::plan {

// Reads only the ranges that are asked for, from mapped files, and widens them to fp32. A rank never holds more of the
// model than it asks for; pages that several ranks of a host read are in memory once.
class DirectoryWeights final : public WeightSource {
 public:
  // Opens the directory and accounts for every tensor of `model`.
  // Errors: kIo, kFormat, kUnsupported with file and tensor (formats::ModelDirectory, formats::account_tensors).
  DirectoryWeights(const std::string& directory, const ModelSpec& model);

  // Errors: as WeightSource; kInternal for a parameter that `model` did not have.
  void read(const ParamSpec& param, Range range, float* out) const override;

 private:
  formats::ModelDirectory directory_;
  std::unordered_map<std::string, formats::LocatedTensor> tensors_;  // by ParamSpec::name
};

}  // namespace intarsia::plan
