#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "intarsia/comm/fault.h"
#include "intarsia/comm/recorder.h"
#include "intarsia/comm/run_ranks.h"

namespace intarsia::comm {
namespace {

TEST(Recorder, WritesDownEachOperation) {
  run_ranks(2, [](Communicator& inner) {
    RecordingCommunicator comm(inner);
    comm.all_gather(at::zeros({8}), at::zeros({4}), {"layers.0", "gather"})->wait();
    comm.barrier({"", "step"});
    EXPECT_EQ(comm.records()[0], (OpRecord{0, Op::kAllGather, "layers.0", "gather", 32}));
    EXPECT_EQ(comm.text(), "0 all_gather layers.0 gather 32\n1 barrier - step 0\n");
  });
}

TEST(Fault, FailsAtTheGivenOperationAndTheOthersLearnIt) {
  try {
    run_ranks(3, [](Communicator& inner) {
      FaultyCommunicator comm(inner, {.at_operation = inner.rank() == 1 ? 2 : 99, .failure = "cable pulled"});
      for (int i = 0; i < 5; ++i) comm.barrier({"layers.1", "step"});
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "injected in barrier (unit 'layers.1', step) on rank 1: cable pulled");
  }
}

TEST(Fault, DelaysTheGivenOperation) {
  run_ranks(2, [](Communicator& inner) {
    FaultyCommunicator comm(inner, {.at_operation = inner.rank() == 0 ? 0 : 99, .delay_seconds = 0.1});
    comm.barrier({"", "step"});
    if (comm.rank() == 1) {
      EXPECT_GT(comm.waited_seconds(), 0.05);
    }
  });
}

}  // namespace
}  // namespace intarsia::comm
