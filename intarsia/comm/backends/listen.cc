#include "intarsia/comm/backends/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"

namespace intarsia::comm {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& address, int port, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  INTARSIA_CHECK(kComm, error == 0, "the address of rank 0, '", printable(address),
                 "', cannot be resolved: ", ::gai_strerror(error), "; look at MASTER_ADDR");
  return {found, &::freeaddrinfo};
}

int port_of(const sockaddr_storage& name) {
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

}  // namespace

Listener listen_on(const std::string& address, int port) {
  const Addresses addresses = resolve(address, port, SOCK_STREAM);
  int error = 0;
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      error = errno;
      continue;
    }
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    if (::bind(fd, entry->ai_addr, entry->ai_addrlen) == 0 && ::listen(fd, 1024) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0) {
      return {fd, port_of(name)};
    }
    error = errno;
    ::close(fd);
    if (error == EADDRINUSE) break;
  }
  INTARSIA_CHECK(kUsage, error != EADDRINUSE, "port ", port, " of ", printable(address),
                 " is taken by another program; choose another MASTER_PORT");
  fail(ErrorKind::kUsage, "rank 0 cannot listen on ", printable(address), ":", port, ": ", std::strerror(error),
       "; MASTER_ADDR must be an address of the host that runs rank 0");
}

std::string local_address_towards(const std::string& address, int port) {
  // Connecting a datagram socket sends nothing; it only asks the routing table.
  const Addresses addresses = resolve(address, port, SOCK_DGRAM);
  int error = 0;
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    const bool known = fd >= 0 && ::connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0;
    error = errno;
    if (fd >= 0) ::close(fd);
    std::array<char, 128> text{};
    if (known && ::getnameinfo(reinterpret_cast<sockaddr*>(&name), length, text.data(), text.size(), nullptr, 0,
                               NI_NUMERICHOST) == 0) {
      return text.data();
    }
  }
  fail(ErrorKind::kComm, "no route leads to ", printable(address), ", the address of rank 0: ", std::strerror(error));
}

}  // namespace intarsia::comm
