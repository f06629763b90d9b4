// Starting a user's own program as the ranks of this host.
#pragma once

#include <string>
#include <vector>

#include "intarsia/launch/local_ranks.h"

namespace intarsia::launch {

// A port of 127.0.0.1 that the system gives to nobody else while the object lives; the program that is meant to can
// still listen there (with SO_REUSEADDR, as servers do).
class ReservedPort {
 public:
  // Errors: kIo.
  ReservedPort();
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

// The path that `program` stands for: itself if it has a slash, else the first match in PATH.
// Errors: kUsage when there is none or it cannot be executed.
std::string find_program(const std::string& program);

// Runs words[0] with the other words as arguments on every rank, without a shell, with RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, and OMP_NUM_THREADS (the rank's cores) unless it is. Returns as
// run_local_ranks does.
int run_program_ranks(const LocalRanksOptions& options, const std::vector<std::string>& words);

}  // namespace intarsia::launch
