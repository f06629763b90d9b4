#include "intarsia/comm/backends/nccl.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/comm/backends/listen.h"
#include "intarsia/tensor/plugin.h"

namespace intarsia::comm {

NcclMeeting::NcclMeeting(Communicator& world, const std::string& address, double timeout_seconds)
    : timeout_seconds_(timeout_seconds) {
  const bool serves = world.rank() == 0;
  Listener listener;
  if (serves) listener = listen_on(address, 0);
  const at::Tensor port = at::full({1}, static_cast<std::int64_t>(listener.port), at::kLong);
  world.broadcast(port, 0, {"", "port of the NCCL meeting"})->wait();
  c10d::TCPStoreOptions options;
  options.isServer = serves;
  options.port = static_cast<std::uint16_t>(port.item<std::int64_t>());
  options.numWorkers = static_cast<std::size_t>(world.size());
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1000));
  if (serves) options.masterListenFd = listener.fd;
  try {
    store_ = c10::make_intrusive<c10d::TCPStore>(address, options);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    fail(ErrorKind::kComm, "rank ", world.rank(), " of ", world.size(), " cannot meet rank 0 at ", printable(address),
         ":", options.port, " for NCCL: ", printable(text.substr(0, text.find('\n'))));
  }
}

NcclMeeting::~NcclMeeting() = default;

std::unique_ptr<Communicator> NcclMeeting::join(const std::string& axis, int rank, int size) const {
  using Make = Communicator* (*)(const c10::intrusive_ptr<c10d::Store>&, const std::string&, int, int, double);
  const auto make = reinterpret_cast<Make>(tensor::cuda_function("intarsia_cuda_communicator"));
  return std::unique_ptr<Communicator>(make(store_, axis, rank, size, timeout_seconds_));
}

}  // namespace intarsia::comm
