#include "intarsia/plan/directory_weights.h"

#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/formats/account_tensors.h"

namespace intarsia::plan {

DirectoryWeights::DirectoryWeights(const std::string& directory, const ModelSpec& model)
    : directory_(formats::ModelDirectory::open(directory)) {
  std::vector<formats::ExpectedTensor> expected;
  for (const ParamSpec& param : model.params)
    expected.push_back({.name = param.name, .shape = param.shape, .tied_names = param.tied_names});
  const auto located = formats::account_tensors(directory_, expected);
  for (std::size_t i = 0; i < located.size(); ++i) tensors_.emplace(model.params[i].name, located[i]);
}

void DirectoryWeights::read(const ParamSpec& param, Range range, float* out) const {
  const auto found = tensors_.find(param.name);
  INTARSIA_INVARIANT(found != tensors_.end(), "no parameter ", param.name, " in ", directory_.path());
  formats::read_as_f32(*found->second.file, *found->second.tensor, range.begin, range.end, out);
}

}  // namespace intarsia::plan
