#include "intarsia/comm/run_ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace intarsia::comm {
TEST(RunRanks, RethrowsTheFirstCause) {
  try {
    run_ranks(4, [](Communicator& comm) {
      if (comm.rank() == 2) fail(ErrorKind::kData, "bad sample");
      comm.barrier({"unit", "phase"});
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
  }
}
TEST(RunRanks, AddsInRankOrder) {
  run_ranks(4, [](Communicator& comm) {
    for (long n : {0L, 1L, 7L, 1000003L}) {
      at::Tensor t = at::full({n}, comm.rank() + 1.0f);
      comm.all_reduce(t, ReduceOp::kSum, {"u", "p"})->wait();
      EXPECT_TRUE(at::equal(t, at::full({n}, 10.0f)));
    }
  });
}
}  // namespace intarsia::comm
