// Tagged messages between ranks through c10d's ProcessGroupGloo. The only file pair that sees c10d.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "intarsia/comm/backends/gloo.h"

namespace intarsia::comm {

class GlooTransport {
 public:
  // A message under way. wait() throws std::exception of c10d's or gloo's; after a time-out or a closed connection the
  // transport is of no more use.
  class Message {
   public:
    virtual ~Message() = default;
    virtual void wait(std::chrono::milliseconds timeout) = 0;
  };

  static std::unique_ptr<GlooTransport> connect(const GlooOptions& options);
  virtual ~GlooTransport() = default;

  // The tensor must stay until the message is waited for. Messages match by (sender, receiver, tag), tag >= 0.
  virtual std::unique_ptr<Message> send(const at::Tensor& tensor, int to, int tag) = 0;
  virtual std::unique_ptr<Message> recv(const at::Tensor& tensor, int from, int tag) = 0;

  // The group's reason to stop, and whether this rank gave it.
  struct Settled {
    bool first;
    std::string reason;
  };
  // Stores `reason` as the group's reason to stop unless there is one, and returns the one that holds; nothing when the
  // store cannot be reached.
  virtual std::optional<Settled> settle_reason(const std::string& reason) noexcept = 0;
  // Closes the connections to the other ranks (once their messages are gone); the store stays.
  virtual void disconnect() noexcept = 0;
  // Says that this rank needs the store no more; the rank that serves it waits a little for the others.
  virtual void leave() noexcept = 0;
};

}  // namespace intarsia::comm
