#include "intarsia/launch/local_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>

#include "intarsia/base/error.h"

namespace intarsia::launch {
namespace {

using Clock = std::chrono::steady_clock;

// Words that forked ranks and the test share.
class Shared {
 public:
  Shared()
      : words_(static_cast<std::atomic<int>*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { ::munmap(words_, 4096); }
  std::atomic<int>& operator[](int index) { return words_[index]; }

 private:
  std::atomic<int>* words_;
};

struct Outcome {
  int code;
  std::string message;
  double seconds;
};

Outcome run(int ranks, const std::function<int(int)>& body) {
  testing::internal::CaptureStderr();
  const auto start = Clock::now();
  LocalRanksOptions options;
  options.ranks = ranks;
  const int code = run_local_ranks(options, body);
  return {code, testing::internal::GetCapturedStderr(), std::chrono::duration<double>(Clock::now() - start).count()};
}

int sleep_long() {
  for (int i = 0; i < 600; ++i) ::usleep(100'000);
  return 0;
}

TEST(LocalRanks, RunEachOnceAndReturnZero) {
  Shared shared;
  const Outcome outcome = run(5, [&](int rank) {
    ++shared[rank];
    return 0;
  });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.message, "");
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(shared[rank], 1);
}

TEST(LocalRanks, KilledRankEndsTheOthersWithinTwoSecondsAndIsNamed) {
  Shared shared;
  const Outcome outcome = run(4, [&](int rank) {
    shared[rank] = ::getpid();
    // The others would not stop at SIGTERM.
    ::signal(SIGTERM, SIG_IGN);
    if (rank == 2) ::kill(::getpid(), SIGKILL);
    return sleep_long();
  });
  EXPECT_EQ(outcome.code, 4);
  EXPECT_LT(outcome.seconds, 2.0);
  EXPECT_NE(outcome.message.find("rank 2 of 4 (host "), std::string::npos) << outcome.message;
  EXPECT_NE(outcome.message.find(concat("pid ", shared[2].load())), std::string::npos) << outcome.message;
  EXPECT_NE(outcome.message.find("signal 9"), std::string::npos) << outcome.message;
  EXPECT_NE(outcome.message.find("memory"), std::string::npos) << outcome.message;
  for (int rank = 0; rank < 4; ++rank) EXPECT_NE(::kill(shared[rank], 0), 0) << "rank " << rank << " survived";
}

TEST(LocalRanks, FirstCauseWinsOverWhatItCaused) {
  const Outcome outcome = run(3, [&](int rank) {
    if (rank != 1) return 4;  // "a peer failed", seen earlier than the cause
    ::usleep(100'000);
    return 3;
  });
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.message.find("rank 1 of 3"), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.message.find("rank 0"), std::string::npos) << outcome.message;
}

TEST(LocalRanks, AnErrorOfTheBodyIsPrintedAndGivesItsExitCode) {
  const Outcome outcome = run(2, [&](int rank) -> int {
    if (rank == 0) fail(ErrorKind::kData, "no samples");
    return sleep_long();
  });
  EXPECT_EQ(outcome.code, 5);
  EXPECT_NE(outcome.message.find("rank 0: no samples"), std::string::npos) << outcome.message;
}

TEST(LocalRanks, AStopOnRequestEndsNobodyElse) {
  const Outcome outcome = run(2, [&](int rank) {
    if (rank == 0) return kExitStopped;
    ::usleep(600'000);
    return kExitStopped;
  });
  EXPECT_EQ(outcome.code, kExitStopped);
  EXPECT_EQ(outcome.message, "");
}

std::atomic<int> interrupted{0};

TEST(LocalRanks, PassesSigintOnAndTheSecondKills) {
  for (const bool twice : {false, true}) {
    Shared shared;
    const pid_t launcher = ::getpid();
    const pid_t user = ::fork();
    if (user == 0) {
      while (shared[0] == 0 || shared[1] == 0) ::usleep(1000);
      ::kill(launcher, SIGINT);
      if (twice) {
        ::usleep(200'000);
        ::kill(launcher, SIGINT);
      }
      ::_exit(0);
    }
    const Outcome outcome = run(2, [&](int rank) {
      ::signal(SIGINT, [](int) { interrupted = 1; });
      shared[rank] = 1;
      while (interrupted == 0 || twice) ::usleep(10'000);
      return kExitStopped;
    });
    ::waitpid(user, nullptr, 0);
    EXPECT_EQ(outcome.code, twice ? 130 : kExitStopped);
  }
}

TEST(LocalRanks, DieWithTheirLauncher) {
  Shared shared;
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    LocalRanksOptions options;
    options.ranks = 2;
    ::_exit(run_local_ranks(options, [&](int rank) {
      shared[rank] = ::getpid();
      return sleep_long();
    }));
  }
  while (shared[0] == 0 || shared[1] == 0) ::usleep(1000);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  // Who adopts them reaps them; a zombie still answers to signal 0, so ask for the state.
  const auto gone = [](int pid) {
    if (::kill(pid, 0) != 0) return true;
    const std::string path = concat("/proc/", pid, "/stat");
    std::FILE* file = std::fopen(path.c_str(), "r");
    if (file == nullptr) return true;
    char state = 'R';
    const int read = std::fscanf(file, "%*d (%*[^)]) %c", &state);
    std::fclose(file);
    return read != 1 || state == 'Z' || state == 'X';
  };
  for (int tries = 0; tries < 200 && !(gone(shared[0]) && gone(shared[1])); ++tries) ::usleep(10'000);
  EXPECT_TRUE(gone(shared[0]) && gone(shared[1]));
}

TEST(LocalRanks, RefusesZeroRanks) {
  LocalRanksOptions options;
  options.ranks = 0;
  EXPECT_THROW(run_local_ranks(options, [](int) { return 0; }), Error);
}

}  // namespace
}  // namespace intarsia::launch
