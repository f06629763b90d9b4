// Sockets for the meeting of ranks on several hosts.
#pragma once

#include <string>

namespace intarsia::comm {

struct Listener {
  int fd = -1;  // the caller's to close, or to hand to rank 0
  int port = 0;
};

// Listens on the interface of `address` only (a name or a number); port 0: the kernel chooses one.
// Errors: kUsage for a port that is taken or an address that is not this host's.
Listener listen_on(const std::string& address, int port);

// The address of this host's interface that leads to `address`, as a number.
// Errors: kComm when the name is unknown or no route leads there.
std::string local_address_towards(const std::string& address, int port);

}  // namespace intarsia::comm
