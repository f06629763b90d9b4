// The gloo backend: c10d's ProcessGroupGloo over TCP, for ranks on several hosts.
#pragma once

#include <memory>
#include <string>

#include "intarsia/comm/communicator.h"

namespace intarsia::comm {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  // where rank 0 can be reached
  int port = 0;
  int listen_fd = -1;         // rank 0: a socket that listens there already (it is taken over); -1: one is made
  bool store_served = false;  // a launcher serves the key-value store at address:port (torchrun)
  std::string store_prefix;   // names of this job and axis in the store
  double timeout_seconds = 600;
};

// Meets the other ranks; returns when all are connected. Collective over all ranks of the group.
// Reductions are send and receive, then our own sum (comm/reduce.h): gloo only carries bytes. reduce_scatter takes
// extra memory of the size of its input, all_reduce of its tensor (times the ranks below 64 KiB). Errors: kUsage when
// the port is taken; kComm when the ranks do not all arrive within the timeout. SIGPIPE is ignored from then on, where
// it had its default effect.
std::unique_ptr<Communicator> make_gloo_communicator(const GlooOptions& options);

}  // namespace intarsia::comm
