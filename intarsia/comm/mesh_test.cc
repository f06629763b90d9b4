#include "intarsia/comm/mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "intarsia/comm/recorder.h"
#include "intarsia/comm/testing_backends.h"

namespace intarsia::comm {
namespace {

plan::RunPlan plan_of(plan::CommBackend backend, int ranks) {
  plan::RunPlan plan;
  plan.backend = backend;
  plan.ranks = ranks;
  plan.comm_timeout_seconds = 20;
  return plan;
}

// The flow of a program: region or socket first, then the ranks, then the mesh in each.
TEST(Mesh, ForkedRanksMeetOverShmAndGloo) {
  for (const auto backend : {plan::CommBackend::kShm, plan::CommBackend::kGloo}) {
    const plan::RunPlan plan = plan_of(backend, 3);
    Rendezvous common;
    common.world = 3;
    common.regions = shared_regions_for(plan);
    const Listener listener = listen_on("127.0.0.1", 0);
    common.master_port = listener.port;
    std::unique_ptr<Mesh> mesh;  // of the rank, in its process
    const auto outcomes = run_processes(
        3,
        [&](int rank) -> std::unique_ptr<Communicator> {
          Rendezvous mine = common;
          mine.rank = rank;
          mine.listen_fd = rank == 0 ? ::dup(listener.fd) : -1;
          mesh = Mesh::create(plan, mine);
          return std::make_unique<RecordingCommunicator>(mesh->world());
        },
        [](Communicator& comm) {
          at::Tensor one = at::ones({1});
          comm.all_reduce(one, ReduceOp::kSum, {"", "test"})->wait();
          EXPECT_EQ(one.item<float>(), 3.0F);
        });
    ::close(listener.fd);
    for (const RankOutcome& outcome : outcomes)
      EXPECT_FALSE(outcome.threw || outcome.failed || outcome.killed) << outcome.message;
  }
}

TEST(Mesh, OneRankNeedsNothing) {
  const auto mesh = Mesh::create(plan_of(plan::CommBackend::kShm, 1), {});
  EXPECT_EQ(mesh->world().size(), 1);
  EXPECT_TRUE(mesh->world().allocate_shared(100));
}

TEST(Mesh, RefusesAnotherNumberOfRanksThanPlanned) {
  Rendezvous rendezvous;
  rendezvous.world = 2;
  EXPECT_THROW(Mesh::create(plan_of(plan::CommBackend::kShm, 4), rendezvous), Error);
}

}  // namespace
}  // namespace intarsia::comm
