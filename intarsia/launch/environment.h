// What a launcher (torchrun, mpirun, srun, ...) tells a process about its place among the ranks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace intarsia::launch {

using Variables = std::map<std::string, std::string>;

struct RankEnvironment {
  std::string launcher;  // who won, for the banner: "torchrun", "Open MPI", ...
  int rank = 0;
  int world = 1;
  std::optional<int> local_rank;   // among the ranks of this host
  std::optional<int> local_world;  // ranks of this host
  std::string master_address;      // where rank 0 listens; empty when world is 1 and nobody said
  int master_port = 0;
  bool store_served = false;  // torchrun's agent serves a c10d store there already
  std::string store_prefix;   // of this job's keys in that store
};

// Reads what the first of these says: RANK and WORLD_SIZE (torchrun, DeepSpeed, Ray, Kubernetes), OMPI_*, PMI_* (MPICH,
// Intel MPI), SLURM_* inside a step of several tasks. Nothing when none of them is there. A missing address is derived:
// 127.0.0.1 when all ranks share this host, the first host of a Slurm step; a missing port from the job's id.
// `job_key` stands for the job where a launcher gives no id: the parent's pid, which ranks of one host share.
// Errors: kUsage for what is not a number, for a rank outside its world, for half of a pair, for an address that nobody
// gives.
std::optional<RankEnvironment> read_environment(const Variables& variables, const std::string& job_key);

// The variables of this process.
Variables process_variables();

// --ranks N next to a launcher's environment. Errors: kUsage when both disagree.
void check_ranks_flag(int ranks, const RankEnvironment& environment);

// The hosts of a Slurm list such as "n[08-10,12],m3". Errors: kUsage with the text.
std::vector<std::string> expand_slurm_hosts(const std::string& list);

// Tasks of each node of a Slurm list such as "2(x3),1". Errors: kUsage with the text.
std::vector<int> expand_slurm_tasks(const std::string& list);

}  // namespace intarsia::launch
