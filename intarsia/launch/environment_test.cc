#include "intarsia/launch/environment.h"

#include <gtest/gtest.h>

#include "intarsia/base/error.h"

namespace intarsia::launch {
namespace {

std::string error_of(const Variables& variables) {
  try {
    read_environment(variables, "ppid 7");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

TEST(Environment, IsNothingWithoutALauncher) { EXPECT_FALSE(read_environment({{"HOME", "/x"}}, "")); }

TEST(Environment, ReadsTorchrunAndItsStore) {
  const auto found = read_environment({{"RANK", "3"},
                                       {"WORLD_SIZE", "4"},
                                       {"LOCAL_RANK", "1"},
                                       {"LOCAL_WORLD_SIZE", "2"},
                                       {"MASTER_ADDR", "node-a"},
                                       {"MASTER_PORT", "29400"},
                                       {"TORCHELASTIC_RUN_ID", "none"},
                                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                       {"TORCHELASTIC_RESTART_COUNT", "2"}},
                                      "");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, "torchrun");
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->world, 4);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_world, 2);
  EXPECT_EQ(found->master_address, "node-a");
  EXPECT_EQ(found->master_port, 29400);
  EXPECT_TRUE(found->store_served);
  EXPECT_EQ(found->store_prefix, "/worker/attempt_2/");
}

TEST(Environment, RankAndWorldSizeWinOverMpiAndSlurm) {
  const auto found = read_environment({{"RANK", "0"},
                                       {"WORLD_SIZE", "2"},
                                       {"MASTER_ADDR", "a"},
                                       {"OMPI_COMM_WORLD_RANK", "5"},
                                       {"OMPI_COMM_WORLD_SIZE", "8"},
                                       {"SLURM_STEP_ID", "0"},
                                       {"SLURM_PROCID", "9"},
                                       {"SLURM_NTASKS", "16"}},
                                      "");
  EXPECT_EQ(found->world, 2);
  EXPECT_EQ(found->master_port, 29500);
  EXPECT_EQ(found->launcher, "RANK and WORLD_SIZE");
}

TEST(Environment, MpiOnOneHostMeetsOnLoopbackAtThePortOfTheJob) {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"PMIX_NAMESPACE", "41.1"}};
  const auto one = read_environment(variables, "");
  EXPECT_EQ(one->launcher, "Open MPI");
  EXPECT_EQ(one->master_address, "127.0.0.1");
  EXPECT_GE(one->master_port, 10000);
  EXPECT_LT(one->master_port, 30000);
  variables["OMPI_COMM_WORLD_RANK"] = "0";
  EXPECT_EQ(read_environment(variables, "")->master_port, one->master_port);
  variables["PMIX_NAMESPACE"] = "42.1";
  EXPECT_NE(read_environment(variables, "")->master_port, one->master_port);
}

TEST(Environment, MpiOnSeveralHostsNeedsAnAddress) {
  Variables variables{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  EXPECT_NE(error_of(variables).find("MASTER_ADDR"), std::string::npos);
  variables["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(read_environment(variables, "")->master_address, "10.0.0.1");
}

TEST(Environment, ReadsHydra) {
  const auto found = read_environment(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}, "ppid 7");
  EXPECT_EQ(found->launcher, "MPICH or Intel MPI");
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->master_address, "127.0.0.1");
}

TEST(Environment, ReadsAStepOfSlurm) {
  const auto found = read_environment({{"SLURM_JOB_ID", "30005"},
                                       {"SLURM_STEP_ID", "0"},
                                       {"SLURM_PROCID", "5"},
                                       {"SLURM_LOCALID", "1"},
                                       {"SLURM_NODEID", "2"},
                                       {"SLURM_STEP_NUM_TASKS", "7"},
                                       {"SLURM_NTASKS", "9"},
                                       {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                                       {"SLURM_STEP_NODELIST", "n[08-10],m3"}},
                                      "");
  EXPECT_EQ(found->launcher, "Slurm");
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->world, 7);
  EXPECT_EQ(found->local_world, 2);
  EXPECT_EQ(found->master_address, "n08");
  EXPECT_EQ(found->master_port, 20005);
}

TEST(Environment, TheShellOfSallocAndTheBatchScriptAreOneProcess) {
  Variables variables{{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}};
  EXPECT_FALSE(read_environment(variables, ""));
  variables["SLURM_STEP_ID"] = "4294967290";
  EXPECT_FALSE(read_environment(variables, ""));
  variables["SLURM_STEP_ID"] = "0";
  variables["SLURM_NTASKS"] = "1";
  EXPECT_FALSE(read_environment(variables, ""));
}

TEST(Environment, RefusesBadNumbersAndContradictionsByName) {
  EXPECT_NE(error_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).find("RANK is 'x'"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "1 "}, {"WORLD_SIZE", "2"}}).find("RANK"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).find("RANK is '-1'"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "0"}}).find("not WORLD_SIZE"), std::string::npos);
  EXPECT_NE(error_of({{"WORLD_SIZE", "2"}}).find("not RANK"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).find("rank 2 of 2"),
            std::string::npos);
  EXPECT_NE(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}})
                .find("4 ranks on this host"),
            std::string::npos);
  EXPECT_NE(
      error_of(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}})
          .find("local rank 1"),
      std::string::npos);
  EXPECT_NE(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}})
                .find("MASTER_PORT"),
            std::string::npos);
}

TEST(Environment, RanksFlagMustAgree) {
  RankEnvironment environment;
  environment.launcher = "torchrun";
  environment.world = 2;
  EXPECT_NO_THROW(check_ranks_flag(2, environment));
  EXPECT_THROW(check_ranks_flag(4, environment), Error);
}

TEST(SlurmLists, ExpandHostsWithZerosInFront) {
  EXPECT_EQ(expand_slurm_hosts("n[08-10,12],m3"), (std::vector<std::string>{"n08", "n09", "n10", "n12", "m3"}));
  EXPECT_EQ(expand_slurm_hosts("r[1-2]s[1,3]x"), (std::vector<std::string>{"r1s1x", "r1s3x", "r2s1x", "r2s3x"}));
  for (const char* bad : {"", "n[", "n]", "n[1-", "n[2-1]", "n[a]", "a,,b", "n[1-999999999]", "n[[1]]"}) {
    EXPECT_THROW(expand_slurm_hosts(bad), Error) << bad;
  }
}

TEST(SlurmLists, ExpandTasks) {
  EXPECT_EQ(expand_slurm_tasks("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  for (const char* bad : {"", "2(x)", "2(x3", "x", "2,", "2(x0)"}) EXPECT_THROW(expand_slurm_tasks(bad), Error) << bad;
}

}  // namespace
}  // namespace intarsia::launch
