#include "intarsia/plan/unit_layout.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace intarsia::plan {
namespace {

ModelSpec two_units() {
  ModelSpec model;
  model.units = {{"embed", {0}}, {"block", {1, 2, 3}}};
  const auto add = [&](const char* name, std::vector<std::int64_t> shape, int unit, bool frozen = false) {
    ParamSpec& param = model.params.emplace_back();
    param.name = name;
    param.shape = std::move(shape);
    param.unit = unit;
    param.frozen = frozen;
  };
  add("embed.weight", {9, 5}, 0);
  add("block.weight", {70, 30}, 1);
  add("block.frozen", {8}, 1, true);
  add("block.empty", {0, 8}, 1);
  return model;
}

TEST(UnitLayout, PadsSlotsAndRoundsShards) {
  const auto layouts = layout_units(two_units(), 2);
  ASSERT_EQ(layouts.size(), 3U);
  EXPECT_EQ(layouts[0].shard_numel, 1024);
  EXPECT_EQ(layouts[1].name, "block");
  EXPECT_EQ(layouts[1].slots[0].offset, 0);
  EXPECT_EQ(layouts[1].slots[1].offset, 2112) << "2100 rounded up to 32";
  EXPECT_EQ(layouts[1].shard_numel, 2048) << "half of 2112, rounded up to blocks of 1024";
  EXPECT_EQ(layouts[1].flat_numel(), 4096);
}

TEST(UnitLayout, KeepsFrozenParametersApart) {
  const auto layouts = layout_units(two_units(), 4);
  EXPECT_FALSE(layouts[2].trainable);
  EXPECT_EQ(layouts[2].slots[0].param, 2);
  EXPECT_EQ(layouts[2].name, "block (frozen)");
}

TEST(UnitLayout, EveryElementHasExactlyOneOwner) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const FlatLayout& layout : layout_units(two_units(), ranks)) {
      for (const ParamSlot& slot : layout.slots) {
        std::int64_t covered = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Range range = param_range(slot, layout.shard(rank));
          if (range.size() > 0) {
            EXPECT_EQ(range.begin, covered);
          }
          covered += range.size();
        }
        EXPECT_EQ(covered, slot.numel);
      }
    }
  }
}

}  // namespace
}  // namespace intarsia::plan
