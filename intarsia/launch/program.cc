#include "intarsia/launch/program.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::launch {
namespace {

bool executable(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

ReservedPort::ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(name);
  // Bound, never listening: that keeps the number, and lets another socket listen on it.
  const bool bound = fd_ >= 0 && ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                     ::bind(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0 &&
                     ::getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &length) == 0;
  if (!bound) {
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    fail(ErrorKind::kIo, "no free port on 127.0.0.1: ", std::strerror(error));
  }
  port_ = ntohs(name.sin_port);
}

ReservedPort::~ReservedPort() { ::close(fd_); }

std::string find_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    INTARSIA_CHECK(kUsage, executable(program), "the program ", printable(program),
                   " does not exist or is not executable");
    return program;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    if (executable(candidate)) return candidate;
  }
  fail(ErrorKind::kUsage, "no program ", printable(program), " in PATH; for one in this folder write ./",
       printable(program));
}

int run_program_ranks(const LocalRanksOptions& options, const std::vector<std::string>& words) {
  INTARSIA_INVARIANT(!words.empty(), "no program");
  const std::string path = find_program(words.front());
  const ReservedPort port;
  const auto cores = divide_cores(read_cores(), options.ranks, options.bind);
  return run_local_ranks(options, [&](int rank) -> int {
    const std::size_t own = cores[static_cast<std::size_t>(rank)].size();
    const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
    set("RANK", std::to_string(rank));
    set("LOCAL_RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(options.ranks));
    set("LOCAL_WORLD_SIZE", std::to_string(options.ranks));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(port.port()));
    ::setenv("OMP_NUM_THREADS", std::to_string(std::max<std::size_t>(own, 1)).c_str(), 0);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(path.c_str(), arguments.data());
    fail(ErrorKind::kUsage, printable(path), " cannot be started: ", std::strerror(errno));
  });
}

}  // namespace intarsia::launch
