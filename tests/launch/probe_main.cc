// A program of ranks in miniature, for the tests of this folder: finds its place as intarsia-rank does (local ranks
// that it forks, or a launcher's environment), meets the other ranks, adds ranks up, and can have one of them killed.
//
// launch_probe [--ranks N] [--backend shm|gloo] [--kill RANK]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <string>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/comm/backends/listen.h"
#include "intarsia/comm/mesh.h"
#include "intarsia/launch/environment.h"
#include "intarsia/launch/local_ranks.h"

namespace intarsia {
namespace {

int be_rank(const plan::RunPlan& plan, const comm::Rendezvous& rendezvous, int victim) {
  at::set_num_threads(1);
  const auto mesh = comm::Mesh::create(plan, rendezvous);
  comm::Communicator& world = mesh->world();
  world.barrier({"", "start"});
  if (world.rank() == victim) ::kill(::getpid(), SIGKILL);
  at::Tensor sum = at::full({3}, world.rank() + 1, at::kLong);
  world.all_reduce(sum, comm::ReduceOp::kSum, {"probe.unit", "reduce"})->wait();
  std::cout << concat("rank ", world.rank(), " of ", world.size(), " over ", world.backend_name(), ": ",
                      sum[2].item<std::int64_t>(), "\n")
            << std::flush;
  world.barrier({"", "end"});
  return 0;
}

int run(int argc, char** argv) {
  int ranks = 0;
  int victim = -1;
  plan::RunPlan plan;
  plan.comm_timeout_seconds = 20;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--ranks") ranks = std::stoi(argv[i + 1]);
    if (flag == "--kill") victim = std::stoi(argv[i + 1]);
    if (flag == "--backend" && std::string(argv[i + 1]) == "gloo") plan.backend = plan::CommBackend::kGloo;
  }
  comm::Rendezvous rendezvous;
  const auto environment = launch::read_environment(launch::process_variables(), std::to_string(::getppid()));
  if (environment) {
    if (ranks > 0) launch::check_ranks_flag(ranks, *environment);
    log_note(concat("rank ", environment->rank, " of ", environment->world, ", said by ", environment->launcher));
    plan.backend = plan::CommBackend::kGloo;
    plan.ranks = environment->world;
    rendezvous.rank = environment->rank;
    rendezvous.world = environment->world;
    rendezvous.local_rank = environment->local_rank.value_or(0);
    rendezvous.master_address = environment->master_address;
    rendezvous.master_port = environment->master_port;
    rendezvous.store_served = environment->store_served;
    rendezvous.store_prefix = environment->store_prefix;
    return be_rank(plan, rendezvous, victim);
  }
  plan.ranks = rendezvous.world = std::max(ranks, 1);
  // What ranks inherit is made before they are.
  rendezvous.regions = comm::shared_regions_for(plan);
  comm::Listener listener;
  if (plan.backend == plan::CommBackend::kGloo) listener = comm::listen_on("127.0.0.1", 0);
  rendezvous.master_port = listener.port;
  launch::LocalRanksOptions options;
  options.ranks = plan.ranks;
  return launch::run_local_ranks(options, [&](int rank) {
    comm::Rendezvous mine = rendezvous;
    mine.rank = mine.local_rank = rank;
    mine.listen_fd = rank == 0 ? listener.fd : -1;
    return be_rank(plan, mine, victim);
  });
}

}  // namespace
}  // namespace intarsia

int main(int argc, char** argv) {
  using intarsia::concat;
  try {
    return intarsia::run(argc, argv);
  } catch (const intarsia::Error& error) {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    intarsia::log_error(concat("host ", host.data(), ": ", error.what()));
    return intarsia::exit_code(error.kind());
  }
}
