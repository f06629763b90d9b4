// The only door to other ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "intarsia/base/error.h"

namespace intarsia::comm {

// kComm on a rank that stops because another rank failed: the message is that rank's, which reports it too. A program
// that prints errors may leave this one out.
class AbortedByPeer : public Error {
 public:
  explicit AbortedByPeer(const std::string& message) : Error(ErrorKind::kComm, message) {}
};

// What a collective is for, so that a mismatch or a time-out can name it.
struct Tag {
  std::string unit;   // "model.layers.3", or empty
  std::string phase;  // "gather", "reduce", "norm", ...
};

// A started operation. wait() returns when its result may be read and its input may be changed.
// Errors: kComm from the starting call or from wait(), with the operation, the ranks and the seconds waited; after one
// the communicator is aborted on all ranks.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
};

enum class ReduceOp { kSum, kMax };

// Memory that all ranks of a communicator see at the same pages: what one writes the others read, after a barrier.
// The mapping lives as long as the object.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual void* data() const = 0;
  virtual std::int64_t bytes() const = 0;
};

// Point-to-point and collective operations between the ranks of one axis.
//
// Every rank of the axis must call the same collectives in the same order with equal sizes and dtypes; each has a
// deadline. What differs is an error that names ranks, operation and unit on every rank, never a hang.
// Sums are the balanced binary tree over the ranks in their order (comm/reduce.h), in the tensor's dtype, on every
// backend. Tensors are contiguous; fp32, bf16, int64 (all), any dtype where only bytes move. Empty tensors are fine.
// Threads: one thread per rank uses a communicator.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string backend_name() const = 0;

  // out [size() * n] receives every rank's in [n] in rank order. `in` may be the rank's own piece of `out`.
  virtual std::unique_ptr<Work> all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) = 0;
  // out [n] receives the sum over ranks of piece rank() of in [size() * n]. `out` may be that piece of `in`; the rest
  // of `in` keeps its values.
  virtual std::unique_ptr<Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) = 0;
  virtual std::unique_ptr<Work> all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) = 0;
  virtual std::unique_ptr<Work> broadcast(const at::Tensor& tensor, int root, const Tag& tag) = 0;
  // Piece j of in [size() * n] goes to rank j; piece i of out comes from rank i.
  virtual std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) = 0;
  virtual std::unique_ptr<Work> send(const at::Tensor& tensor, int to, const Tag& tag) = 0;
  virtual std::unique_ptr<Work> recv(const at::Tensor& tensor, int from, const Tag& tag) = 0;
  virtual void barrier(const Tag& tag) = 0;

  // Collective. Zeroed memory that all ranks share, 64-byte aligned; null where the backend cannot (several hosts) or
  // was told to copy.
  virtual std::unique_ptr<SharedMemory> allocate_shared(std::int64_t bytes) = 0;

  // Makes every pending and later operation of every rank throw kComm with `reason`. Called by the guard of a rank that
  // fails for another reason, so that no other rank is left waiting. Never throws.
  virtual void abort(const std::string& reason) noexcept = 0;

  // Seconds that this rank has spent waiting in operations since the start.
  virtual double waited_seconds() const = 0;
};

}  // namespace intarsia::comm
