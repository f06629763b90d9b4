// Builds a ModelSpec unit after unit, parameter after parameter. Internal to plan/arch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "intarsia/plan/model_spec.h"

namespace intarsia::plan {

class SpecBuilder {
 public:
  SpecBuilder(ModelSpec* spec, double init_std) : spec_(spec), init_std_(init_std) {}

  void begin_unit(const std::string& name) { spec_->units.push_back({.name = name, .params = {}}); }

  // A matrix [rows, columns] that starts normal; tensor parallelism splits `parallel_dim`.
  ParamSpec& matrix(const std::string& name, std::int64_t rows, std::int64_t columns, int parallel_dim) {
    ParamSpec& param = add(name, {rows, columns}, Init::kNormal);
    param.tensor_parallel_dim = parallel_dim;
    return param;
  }
  // A vector of zeros; tensor parallelism splits it with the columns that it is added to, if `parallel`.
  void bias(const std::string& name, std::int64_t size, bool parallel) {
    ParamSpec& param = add(name, {size}, Init::kZeros);
    if (parallel) param.tensor_parallel_dim = 0;
  }
  void norm(const std::string& name, std::int64_t size) { add(name, {size}, Init::kOnes); }

 private:
  ParamSpec& add(const std::string& name, std::vector<std::int64_t> shape, Init init) {
    spec_->units.back().params.push_back(static_cast<int>(spec_->params.size()));
    ParamSpec param;
    param.name = name;
    param.shape = std::move(shape);
    param.unit = static_cast<int>(spec_->units.size()) - 1;
    param.init = init;
    param.init_std = init_std_;
    return spec_->params.emplace_back(std::move(param));
  }

  ModelSpec* spec_;
  double init_std_;
};

}  // namespace intarsia::plan
