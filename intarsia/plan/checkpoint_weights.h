// Initial weights from a checkpoint of any peer.
#pragma once

#include <string>
#include <unordered_map>

#include "intarsia/formats/peers/logical_checkpoint.h"
#include "intarsia/plan/model_spec.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::plan {

// Reads only the ranges that are asked for, the fp32 masters where the checkpoint has them.
class CheckpointWeights final : public WeightSource {
 public:
  // Accounts for every weight of `model` and of the checkpoint; a tied one may stand under any of its names, and where
  // it stands under several it is compared. Errors: kFormat with all weights that are missing, extra, of another shape
  // or no floats, and ties that differ.
  CheckpointWeights(formats::LogicalCheckpoint checkpoint, const ModelSpec& model);

  void read(const ParamSpec& param, Range range, float* out) const override;

  const formats::LogicalCheckpoint& checkpoint() const { return checkpoint_; }
  // What the checkpoint has of one kind of a parameter ("exp_avg", ...); null when nothing. "master" and "weight"
  // mean the same, the weight itself. Errors: kFormat when it has another shape.
  const formats::LogicalTensor* find(std::string_view kind, const ParamSpec& param) const;

 private:
  formats::LogicalCheckpoint checkpoint_;
  std::unordered_map<std::string, const formats::LogicalTensor*> weights_;  // by ParamSpec::name
};

}  // namespace intarsia::plan
