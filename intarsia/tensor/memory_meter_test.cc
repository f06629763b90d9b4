#include "intarsia/tensor/memory_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace intarsia::tensor {
namespace {

TEST(MemoryMeter, BooksTensorsToRankAndCategoryAndFreesToTheOneThatAllocated) {
  install_memory_meter();
  set_memory_rank(7);
  at::Tensor kept;
  {
    const MemoryScope scope(MemoryCategory::kParams);
    kept = at::empty({1000}, at::kFloat);
  }
  EXPECT_EQ(read_memory(7)[MemoryCategory::kParams], 4000);
  std::thread([&] {
    set_memory_rank(8);
    kept.reset();
  }).join();
  EXPECT_EQ(read_memory(7)[MemoryCategory::kParams], 0);
  EXPECT_EQ(read_memory(7).peak[static_cast<std::size_t>(MemoryCategory::kParams)], 4000);
  reset_memory_peak(7);
  EXPECT_EQ(read_memory(7).peak[static_cast<std::size_t>(MemoryCategory::kParams)], 0);
  set_memory_rank(0);
}

TEST(MemoryMeter, BooksMappingsByHand) {
  book_memory(9, MemoryCategory::kParams, 64);
  EXPECT_EQ(read_memory(9).total, 64);
  book_memory(9, MemoryCategory::kParams, -64);
  EXPECT_EQ(read_memory(9).total, 0);
}

}  // namespace
}  // namespace intarsia::tensor
