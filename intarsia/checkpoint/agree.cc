#include "intarsia/checkpoint/agree.h"

#include <ATen/ATen.h>

#include <cstring>
#include <exception>

#include "intarsia/base/error.h"

namespace intarsia::checkpoint {
namespace {

std::string broadcast_from(comm::Communicator& axis, int root, const std::string& text, std::int64_t bytes) {
  const at::Tensor buffer = at::empty({bytes}, at::kByte);
  if (axis.rank() == root) std::memcpy(buffer.mutable_data_ptr(), text.data(), text.size());
  axis.broadcast(buffer, root, {"", "checkpoint text"})->wait();
  return {static_cast<const char*>(buffer.const_data_ptr()), static_cast<std::size_t>(bytes)};
}

}  // namespace

void all_or_none(comm::Communicator& axis, const std::string& what, const std::function<void()>& local) {
  std::string message;
  std::int64_t kind = -1;  // of this rank's failure; -1: none
  try {
    local();
  } catch (const Error& error) {
    message = error.what();
    kind = static_cast<std::int64_t>(error.kind());
  } catch (const std::exception& error) {
    message = error.what();
    kind = static_cast<std::int64_t>(ErrorKind::kIo);
  }
  const auto length = static_cast<std::int64_t>(message.size());
  const at::Tensor mine = at::tensor({kind, length}, at::kLong);
  const at::Tensor all = at::empty({2 * axis.size()}, at::kLong);
  axis.all_gather(all, mine, {"", "checkpoint vote"})->wait();
  const std::int64_t* votes = all.const_data_ptr<std::int64_t>();
  for (int rank = 0; rank < axis.size(); ++rank, votes += 2) {
    if (votes[0] < 0) continue;
    fail(static_cast<ErrorKind>(votes[0]), what, ": rank ", rank, ": ", broadcast_from(axis, rank, message, votes[1]));
  }
}

std::string broadcast_text(comm::Communicator& axis, const std::string& text) {
  const at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
  axis.broadcast(length, 0, {"", "checkpoint text"})->wait();
  return broadcast_from(axis, 0, text, length.const_data_ptr<std::int64_t>()[0]);
}

}  // namespace intarsia::checkpoint
