// Ranks that disagree, miss or die: every rank stops in time, and the message says who and where.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "intarsia/comm/testing_backends.h"

namespace intarsia::comm {
namespace {

void expect_all_stop(const std::vector<RankOutcome>& outcomes, double within_seconds,
                     const std::vector<std::string>& words) {
  int first_causes = 0;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].killed) continue;
    const std::string message = outcomes[rank].message;
    EXPECT_TRUE(outcomes[rank].comm_error) << "rank " << rank << ": " << message;
    EXPECT_LT(outcomes[rank].seconds, within_seconds) << "rank " << rank;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
    if (!outcomes[rank].by_peer) ++first_causes;
  }
  EXPECT_EQ(first_causes, 1) << "one rank reports, the others know that it does";
}

class Failure : public testing::TestWithParam<TestBackend> {};

TEST_P(Failure, DifferentOperationsAreNamed) {
  const auto outcomes = run_backend(GetParam(), 3, 20, [](Communicator& comm) {
    at::Tensor tensor = at::ones({6});
    if (comm.rank() == 1) {
      comm.all_reduce(tensor, ReduceOp::kSum, {"layers.4", "norm"})->wait();
    } else {
      comm.broadcast(tensor, 0, {"layers.5", "gather"})->wait();
    }
  });
  expect_all_stop(outcomes, 10,
                  {"ranks 0, 2", "broadcast", "'layers.5'", "rank 1", "all_reduce", "'layers.4'", "norm"});
}

TEST_P(Failure, DifferentSizesAreNamed) {
  const auto outcomes = run_backend(GetParam(), 2, 20, [](Communicator& comm) {
    // One of them small enough for a single round, the other not.
    const std::int64_t n = comm.rank() == 0 ? 16 : 400'000;
    comm.all_gather(at::zeros({2 * n}), at::zeros({n}), {"layers.0", "gather"})->wait();
  });
  expect_all_stop(outcomes, 10, {"16 fp32", "400000 fp32", "'layers.0'", "rank 0", "rank 1"});
}

TEST_P(Failure, DifferentDtypesAreNamed) {
  const auto outcomes = run_backend(GetParam(), 2, 20, [](Communicator& comm) {
    const at::Tensor tensor = at::zeros({8}, comm.rank() == 0 ? at::kFloat : at::kBFloat16);
    comm.all_reduce(tensor, ReduceOp::kSum, {"", "reduce"})->wait();
  });
  expect_all_stop(outcomes, 10, {"8 fp32", "8 bf16"});
}

// Rank 0 enters a unit once, rank 1 three times: the name and both counts.
TEST_P(Failure, UnitEnteredMoreOftenOnOneRankIsNamedWithCounts) {
  const auto outcomes = run_backend(GetParam(), 2, 20, [](Communicator& comm) {
    const int calls = comm.rank() == 0 ? 1 : 3;
    const auto gather = [&](const char* unit) {
      comm.all_gather(at::zeros({2 * 100}), at::zeros({100}), {unit, "gather"})->wait();
    };
    for (int call = 0; call < calls; ++call) gather("model.adapter");
    gather("model.head");
  });
  expect_all_stop(outcomes, 10, {"unit 'model.adapter': 1 on rank 0, 2 on rank 1", "unit 'model.head'"});
}

TEST_P(Failure, MissingRankIsNamed) {
  const auto outcomes = run_backend(GetParam(), 3, 1.0, [](Communicator& comm) {
    comm.barrier({"", "start"});
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1700));
    at::Tensor tensor = at::zeros({8});
    comm.all_reduce(tensor, ReduceOp::kSum, {"layers.7", "reduce"})->wait();
  });
  expect_all_stop(outcomes, 4, {"timed out after 1 s", "all_reduce", "'layers.7'", "rank 2"});
}

TEST_P(Failure, RankThatFinishedEarlyIsNamed) {
  const auto outcomes = run_backend(GetParam(), 3, 20, [](Communicator& comm) {
    comm.barrier({"", "start"});
    if (comm.rank() == 1) return;
    comm.barrier({"", "step"});
  });
  EXPECT_FALSE(outcomes[1].threw);
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(outcomes[rank].comm_error) << outcomes[rank].message;
    EXPECT_NE(std::string(outcomes[rank].message).find("rank 1"), std::string::npos) << outcomes[rank].message;
    EXPECT_LT(outcomes[rank].seconds, 5);
  }
}

TEST_P(Failure, AbortWakesWaitingRanksWithItsReason) {
  const auto outcomes = run_backend(GetParam(), 3, 20, [](Communicator& comm) {
    comm.barrier({"", "start"});
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      comm.abort("rank 1: no space left");
      return;
    }
    comm.barrier({"", "step"});
  });
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(outcomes[rank].by_peer) << outcomes[rank].message;
    EXPECT_STREQ(outcomes[rank].message, "rank 1: no space left");
    EXPECT_LT(outcomes[rank].seconds, 3);
  }
}

TEST_P(Failure, UnexpectedMessageIsNamed) {
  const auto outcomes = run_backend(GetParam(), 2, 3.0, [](Communicator& comm) {
    at::Tensor tensor = at::zeros({comm.rank() == 0 ? 4 : 5});
    if (comm.rank() == 0) comm.send(tensor, 1, {"stage.0", "forward"})->wait();
    if (comm.rank() == 1) comm.recv(tensor, 0, {"stage.0", "forward"})->wait();
    comm.barrier({"", "end"});
  });
  EXPECT_TRUE(outcomes[1].comm_error) << outcomes[1].message;
  EXPECT_NE(std::string(outcomes[1].message).find("send of 4 fp32"), std::string::npos) << outcomes[1].message;
  EXPECT_TRUE(outcomes[0].comm_error) << outcomes[0].message;
}

INSTANTIATE_TEST_SUITE_P(Backends, Failure,
                         testing::Values(TestBackend::kThreads, TestBackend::kThreadsCopy, TestBackend::kShm,
                                         TestBackend::kShmCopy, TestBackend::kGloo),
                         [](const auto& param) { return std::string(name_of(param.param)); });

class ProcessFailure : public testing::TestWithParam<TestBackend> {};

TEST_P(ProcessFailure, KilledRankIsNamedWithinTwoSeconds) {
  for (const int victim : {0, 2}) {
    const auto outcomes = run_backend(GetParam(), 4, 20, [victim](Communicator& comm) {
      comm.barrier({"", "start"});
      if (comm.rank() == victim) ::kill(::getpid(), SIGKILL);
      comm.all_gather(at::zeros({400}), at::zeros({100}), {"layers.3", "gather"})->wait();
    });
    EXPECT_TRUE(outcomes[victim].killed);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string message = outcomes[rank].message;
      EXPECT_EQ(outcomes[rank].signal, 0) << "rank " << rank;
      EXPECT_TRUE(outcomes[rank].comm_error) << message;
      EXPECT_LT(outcomes[rank].seconds, 2.0);
      EXPECT_NE(message.find(concat("rank ", victim)), std::string::npos) << "rank " << rank << ": " << message;
      EXPECT_NE(message.find("all_gather"), std::string::npos) << message;
      EXPECT_NE(message.find("'layers.3'"), std::string::npos) << message;
    }
  }
}

// The others have noticed and closed their connections when it comes.
TEST_P(ProcessFailure, RankThatComesLateNamesTheKilledOneToo) {
  for (const int victim : {0, 2}) {
    const auto outcomes = run_backend(GetParam(), 4, 20, [victim](Communicator& comm) {
      comm.barrier({"", "start"});
      if (comm.rank() == victim) ::kill(::getpid(), SIGKILL);
      if (comm.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      comm.all_gather(at::zeros({400}), at::zeros({100}), {"layers.3", "gather"})->wait();
    });
    const std::string message = outcomes[3].message;
    EXPECT_TRUE(outcomes[3].comm_error) << message;
    EXPECT_NE(message.find(concat("rank ", victim)), std::string::npos) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ProcessFailure, testing::Values(TestBackend::kShm, TestBackend::kGloo),
                         [](const auto& param) { return std::string(name_of(param.param)); });

TEST(SharedHeap, AboveItsLimitIsAnErrorOnAllRanks) {
  RegionOptions options;
  options.ranks = 2;
  options.process_ranks = false;
  options.heap_limit_bytes = 1 << 20;
  const auto outcomes = run_threads(SharedRegion::create(options), [](Communicator& comm) {
    const auto fits = comm.allocate_shared(700'000);
    EXPECT_TRUE(fits);
    comm.allocate_shared(700'000);
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.threw);
    EXPECT_FALSE(outcome.comm_error);
    EXPECT_NE(std::string(outcome.message).find("of 1.00 MiB in use"), std::string::npos) << outcome.message;
  }
}

TEST(Listen, TakenPortIsAUsageError) {
  const Listener first = listen_on("127.0.0.1", 0);
  try {
    listen_on("127.0.0.1", first.port);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find(std::to_string(first.port)), std::string::npos);
  }
  ::close(first.fd);
}

}  // namespace
}  // namespace intarsia::comm
