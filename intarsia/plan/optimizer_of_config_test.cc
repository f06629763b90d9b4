#include "intarsia/plan/optimizer_of_config.h"

#include <gtest/gtest.h>

#include "intarsia/base/error.h"

namespace intarsia::plan {
namespace {

ModelSpec model_of() {
  ModelSpec model;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) -> ParamSpec& {
    ParamSpec& param = model.params.emplace_back();
    param.name = name;
    param.shape = std::move(shape);
    return param;
  };
  add("model.embed_tokens.weight", {8, 4}).tied_names = {"lm_head.weight"};
  add("model.layers.0.mlp.up.weight", {8, 4});
  add("model.layers.0.norm.weight", {4});
  add("model.layers.1.norm.weight", {4}).frozen = true;
  return model;
}

config::TrainConfig with(std::vector<config::ParamGroupConfig> groups) {
  config::TrainConfig config;
  config.optimizer.lr = 0.01;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.groups = std::move(groups);
  return config;
}

std::string refused(std::vector<config::ParamGroupConfig> groups) {
  try {
    optimizer_of(with(std::move(groups)), model_of());
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParamGroups, HaveTheirOwnRateAndDecay) {
  const OptimizerPlan plan = optimizer_of(
      with({{{"lm_head*"}, 0.001, {}}, {{"model.layers.*.norm.weight", "model.layers.?.mlp.*"}, {}, 0.0}}), model_of());
  EXPECT_DOUBLE_EQ(plan.setting(0).lr_ratio, 0.1) << "a tied parameter has both names";
  EXPECT_EQ(plan.setting(0).weight_decay, 0.1);
  EXPECT_EQ(plan.setting(1).lr_ratio, 1);
  EXPECT_EQ(plan.setting(1).weight_decay, 0);
}

TEST(ParamGroups, AGroupsDecayBeatsTheRuleForVectors) {
  config::TrainConfig config = with({{{"*layers.0.norm*"}, {}, 0.3}});
  config.run.no_decay_1d = true;
  EXPECT_EQ(optimizer_of(config, model_of()).setting(2).weight_decay, 0.3);
  config.optimizer.groups.clear();
  EXPECT_EQ(optimizer_of(config, model_of()).setting(2).weight_decay, 0);
  EXPECT_EQ(optimizer_of(config, model_of()).setting(1).weight_decay, 0.1);
}

TEST(ParamGroups, MistakesAreErrorsAtStart) {
  EXPECT_NE(refused({{{"layers.0"}, {}, 0.0}}).find("the pattern layers.0 matches no trainable parameter"),
            std::string::npos);
  EXPECT_NE(refused({{{"model.layers.1.*"}, {}, 0.0}}).find("matches no trainable parameter"), std::string::npos);
  EXPECT_EQ(refused({{{"*norm*"}, {}, 0.0}, {{"model.layers.0.*"}, 0.1, {}}}),
            "intarsia.param_groups: model.layers.0.norm.weight is matched by *norm* and by model.layers.0.* of another "
            "group; a parameter belongs to one group at most");
  EXPECT_EQ(refused({{{"*norm*", "model.layers.0.*"}, {}, 0.0}}), "accepted");
}

TEST(ParamGroups, MuonsTwoRatesAreShares) {
  config::TrainConfig config = with({});
  config.optimizer.algorithm = "muon";
  config.optimizer.muon_lr = 0.02;
  config.optimizer.adam_lr = 0.001;
  const OptimizerPlan plan = optimizer_of(config, model_of());
  EXPECT_DOUBLE_EQ(plan.setting(0).lr_ratio, 0.1) << "embedding";
  EXPECT_DOUBLE_EQ(plan.setting(1).lr_ratio, 2);
  EXPECT_DOUBLE_EQ(plan.setting(2).lr_ratio, 0.1) << "vector";
}

}  // namespace
}  // namespace intarsia::plan
