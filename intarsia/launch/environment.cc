#include "intarsia/launch/environment.h"

#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdint>
#include <string_view>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::launch {
namespace {

// Below the range that systems give out by themselves.
constexpr int kFirstPort = 10000;
constexpr int kPorts = 20000;
constexpr int kTorchPort = 29500;
// Ids from here on are Slurm's own steps: the interactive shell of salloc, the batch script, ...
constexpr std::int64_t kFirstSpecialStep = 0xFFFFFFF0;

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  bool has(const char* name) const { return text(name).has_value(); }

  // The value; an empty one counts as absent.
  std::optional<std::string> text(const char* name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }

  std::optional<std::int64_t> number(const char* name, std::int64_t least, std::int64_t most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    std::int64_t parsed = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), parsed);
    INTARSIA_CHECK(kUsage,
                   error == std::errc() && end == value->data() + value->size() && parsed >= least && parsed <= most,
                   "the environment variable ", name, " is '", printable(*value), "'; a whole number from ", least,
                   " to ", most, " is needed. The launcher sets it; unset it to run alone");
    return parsed;
  }

  std::optional<int> integer(const char* name, int least) const {
    const auto value = number(name, least, INT_MAX);
    if (!value) return std::nullopt;
    return static_cast<int>(*value);
  }

  // Of two variables that only make sense together.
  int required(const char* name, int least, const char* because) const {
    const auto value = integer(name, least);
    INTARSIA_CHECK(kUsage, value, "the environment has ", because, " but not ", name,
                   "; a launcher sets both. Unset the one to run alone");
    return *value;
  }

 private:
  const Variables& variables_;
};

int port_of_job(const std::string& job) {
  std::uint32_t hash = 2166136261U;
  for (const char character : job) hash = (hash ^ static_cast<unsigned char>(character)) * 16777619U;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

void read_master(const Reader& reader, RankEnvironment& environment) {
  if (const auto address = reader.text("MASTER_ADDR")) environment.master_address = *address;
  if (const auto port = reader.number("MASTER_PORT", 1, 65535)) environment.master_port = static_cast<int>(*port);
}

void derive_master(RankEnvironment& environment, const std::string& job) {
  if (environment.world == 1 && environment.master_address.empty()) return;
  if (environment.master_address.empty()) {
    INTARSIA_CHECK(kUsage, environment.local_world == environment.world, environment.launcher, " started ",
                   environment.world, " ranks", environment.local_world ? " on several hosts" : "",
                   " and nobody says where rank 0 is: set MASTER_ADDR to the address of its host, on all ranks");
    environment.master_address = "127.0.0.1";
  }
  if (environment.master_port == 0) environment.master_port = job.empty() ? kTorchPort : port_of_job(job);
}

RankEnvironment read_torch(const Reader& reader) {
  RankEnvironment environment;
  const bool elastic = reader.has("TORCHELASTIC_RUN_ID");
  environment.launcher = elastic ? "torchrun" : "RANK and WORLD_SIZE";
  environment.rank = reader.required("RANK", 0, "WORLD_SIZE");
  environment.world = reader.required("WORLD_SIZE", 1, "RANK");
  environment.local_rank = reader.integer("LOCAL_RANK", 0);
  environment.local_world = reader.integer("LOCAL_WORLD_SIZE", 1);
  if (!environment.local_world) environment.local_world = reader.integer("LOCAL_SIZE", 1);  // DeepSpeed's launcher
  read_master(reader, environment);
  if (reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    environment.store_served = true;
    environment.store_prefix =
        concat("/worker/attempt_", reader.integer("TORCHELASTIC_RESTART_COUNT", 0).value_or(0), "/");
  }
  derive_master(environment, "");
  return environment;
}

RankEnvironment read_open_mpi(const Reader& reader, const std::string& job_key) {
  RankEnvironment environment;
  environment.launcher = "Open MPI";
  environment.rank = reader.required("OMPI_COMM_WORLD_RANK", 0, "OMPI_COMM_WORLD_SIZE");
  environment.world = reader.required("OMPI_COMM_WORLD_SIZE", 1, "OMPI_COMM_WORLD_RANK");
  environment.local_rank = reader.integer("OMPI_COMM_WORLD_LOCAL_RANK", 0);
  environment.local_world = reader.integer("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
  read_master(reader, environment);
  auto job = reader.text("PMIX_NAMESPACE");
  if (!job) job = reader.text("OMPI_MCA_ess_base_jobid");
  derive_master(environment, job.value_or(job_key));
  return environment;
}

RankEnvironment read_pmi(const Reader& reader, const std::string& job_key) {
  RankEnvironment environment;
  environment.launcher = "MPICH or Intel MPI";
  environment.rank = reader.required("PMI_RANK", 0, "PMI_SIZE");
  environment.world = reader.required("PMI_SIZE", 1, "PMI_RANK");
  environment.local_rank = reader.integer("MPI_LOCALRANKID", 0);
  environment.local_world = reader.integer("MPI_LOCALNRANKS", 1);
  read_master(reader, environment);
  derive_master(environment, reader.text("PMI_JOBID").value_or(job_key));
  return environment;
}

// Inside a step of several tasks; the shell of salloc and the batch script have SLURM_* set too, and are one process.
std::optional<RankEnvironment> read_slurm(const Reader& reader) {
  const auto step = reader.number("SLURM_STEP_ID", 0, UINT32_MAX);
  if (!step || *step >= kFirstSpecialStep) return std::nullopt;
  auto world = reader.integer("SLURM_STEP_NUM_TASKS", 1);
  if (!world) world = reader.integer("SLURM_NTASKS", 1);
  if (!world || *world == 1) return std::nullopt;
  RankEnvironment environment;
  environment.launcher = "Slurm";
  environment.world = *world;
  environment.rank = reader.required("SLURM_PROCID", 0, "SLURM_STEP_ID");
  environment.local_rank = reader.integer("SLURM_LOCALID", 0);
  auto tasks = reader.text("SLURM_STEP_TASKS_PER_NODE");
  if (!tasks) tasks = reader.text("SLURM_TASKS_PER_NODE");
  const int node = reader.integer("SLURM_NODEID", 0).value_or(0);
  if (tasks) {
    const std::vector<int> per_node = expand_slurm_tasks(*tasks);
    INTARSIA_CHECK(kUsage, node < static_cast<int>(per_node.size()), "SLURM_NODEID is ", node, ", but the task list '",
                   printable(*tasks), "' has ", per_node.size(), " nodes");
    environment.local_world = per_node[static_cast<std::size_t>(node)];
  }
  read_master(reader, environment);
  if (environment.master_address.empty() && environment.local_world != environment.world) {
    auto hosts = reader.text("SLURM_STEP_NODELIST");
    if (!hosts) hosts = reader.text("SLURM_JOB_NODELIST");
    if (hosts) environment.master_address = expand_slurm_hosts(*hosts).front();
  }
  if (const auto job = reader.number("SLURM_JOB_ID", 0, INT64_MAX / 2); job && environment.master_port == 0) {
    environment.master_port = kFirstPort + static_cast<int>((*job + *step * 7919) % kPorts);
  }
  derive_master(environment, "");
  return environment;
}

}  // namespace

std::optional<RankEnvironment> read_environment(const Variables& variables, const std::string& job_key) {
  const Reader reader(variables);
  std::optional<RankEnvironment> environment;
  if (reader.has("RANK") || reader.has("WORLD_SIZE")) {
    environment = read_torch(reader);
  } else if (reader.has("OMPI_COMM_WORLD_RANK") || reader.has("OMPI_COMM_WORLD_SIZE")) {
    environment = read_open_mpi(reader, job_key);
  } else if (reader.has("PMI_RANK") || reader.has("PMI_SIZE")) {
    environment = read_pmi(reader, job_key);
  } else {
    environment = read_slurm(reader);
  }
  if (!environment) return std::nullopt;
  INTARSIA_CHECK(kUsage, environment->rank < environment->world, environment->launcher, " says rank ",
                 environment->rank, " of ", environment->world, " ranks; ranks count from 0");
  const int local_world = environment->local_world.value_or(environment->world);
  INTARSIA_CHECK(kUsage, local_world <= environment->world, environment->launcher, " says ", local_world,
                 " ranks on this host, but only ", environment->world, " in all");
  INTARSIA_CHECK(kUsage, environment->local_rank.value_or(0) < local_world, environment->launcher, " says local rank ",
                 *environment->local_rank, " of ", local_world, " ranks on this host; local ranks count from 0");
  return environment;
}

Variables process_variables() {
  Variables variables;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

void check_ranks_flag(int ranks, const RankEnvironment& environment) {
  INTARSIA_CHECK(kUsage, ranks == environment.world, "--ranks ", ranks, " was given, but ", environment.launcher,
                 " started this process as rank ", environment.rank, " of ", environment.world,
                 "; leave --ranks out, or start ", ranks, " ranks");
}

}  // namespace intarsia::launch
