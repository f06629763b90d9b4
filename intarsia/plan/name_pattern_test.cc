#include "intarsia/plan/name_pattern.h"

#include <gtest/gtest.h>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

ModelSpec small_model() {
  ModelSpec model;
  for (const char* name : {"embed.weight", "layers.0.up.weight", "layers.1.up.weight", "norm.weight"}) {
    ParamSpec param;
    param.name = name;
    param.shape = {2, 2};
    model.params.push_back(param);
  }
  model.params[0].tied_names = {"head.weight"};
  return model;
}

std::string frozen_names(const ModelSpec& model) {
  std::string names;
  for (const ParamSpec& param : model.params)
    if (param.frozen) names += param.name + " ";
  return names;
}

TEST(Freeze, TakesWholeNamesAndTiedOnes) {
  ModelSpec model = small_model();
  freeze({"layers.[0-9].*", "head.*"}, model);
  EXPECT_EQ(frozen_names(model), "embed.weight layers.0.up.weight layers.1.up.weight ");
}

TEST(Freeze, RefusesAPatternThatMatchesNothing) {
  ModelSpec model = small_model();
  try {
    freeze({"layers"}, model);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("--freeze layers matches no parameter"), std::string::npos)
        << error.what();
  }
}

TEST(Freeze, RefusesToLeaveNothing) {
  ModelSpec model = small_model();
  EXPECT_THROW(freeze({"*"}, model), Error);
}

}  // namespace
}  // namespace intarsia::plan
