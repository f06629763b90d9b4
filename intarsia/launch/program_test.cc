#include "intarsia/launch/program.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "intarsia/base/error.h"

namespace intarsia::launch {
namespace {

int run(const std::vector<std::string>& words) {
  LocalRanksOptions options;
  options.ranks = 3;
  return run_program_ranks(options, words);
}

TEST(Program, SeesItsPlaceAndArgumentsWithoutAShell) {
  EXPECT_EQ(run({"sh", "-c",
                 "test \"$WORLD_SIZE$LOCAL_WORLD_SIZE$MASTER_ADDR\" = 33127.0.0.1 && test $RANK = $LOCAL_RANK && "
                 "test $MASTER_PORT -gt 0 && test \"$1\" = '$(exit 9); a'",
                 "name", "$(exit 9); a"}),
            0);
}

TEST(Program, ExitCodeIsThatOfTheRankThatFailed) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"sh", "-c", "test $RANK != 1 || exit 7"}), 7);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("rank 1 of 3"), std::string::npos);
}

TEST(Program, UnknownOneIsRefusedBeforeAnyRank) {
  EXPECT_THROW(run({"no-such-program-here"}), Error);
  EXPECT_THROW(run({"./no-such-program-here"}), Error);
}

TEST(ReservedPort, CanBeListenedOnByTheProgramOnly) {
  const ReservedPort reserved;
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port = htons(static_cast<std::uint16_t>(reserved.port()));
  const int plain = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_NE(::bind(plain, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  const int server = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  EXPECT_EQ(::bind(server, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  EXPECT_EQ(::listen(server, 1), 0);
  ::close(plain);
  ::close(server);
}

}  // namespace
}  // namespace intarsia::launch
