// Communicators between CUDA devices. What they are made of lies in the CUDA plugin (intarsia/cuda).
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

#include "intarsia/comm/communicator.h"

namespace c10d {
class Store;
}

namespace intarsia::comm {

// Where the ranks of all axes leave each other the identifiers that NCCL needs to connect.
class NcclMeeting {
 public:
  // Collective over `world`, whose rank 0 serves on the interface of `address`, at a free port.
  // Errors: kComm, kUsage as listen_on().
  NcclMeeting(Communicator& world, const std::string& address, double timeout_seconds);
  ~NcclMeeting();
  NcclMeeting(const NcclMeeting&) = delete;
  NcclMeeting& operator=(const NcclMeeting&) = delete;

  // A communicator for contiguous tensors on the calling thread's device. `axis` names it among all of the meeting.
  // NCCL connects at the first operation. Errors: kUnsupported as tensor::cuda_function().
  std::unique_ptr<Communicator> join(const std::string& axis, int rank, int size) const;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  double timeout_seconds_;
};

}  // namespace intarsia::comm
