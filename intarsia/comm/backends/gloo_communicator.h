// The gloo backend's inside: what gloo.cc, gloo_collectives.cc and gloo_transfer.cc share.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "intarsia/comm/backends/gloo.h"
#include "intarsia/comm/backends/gloo_transport.h"
#include "intarsia/comm/op.h"

namespace intarsia::comm {

using GlooClock = std::chrono::steady_clock;

// Note: tags. A collective's header goes under its number in the order of collectives, its data under a hash of number
// and descriptor. So both can be under way at once, and data never lands in a tensor of a rank that means another
// operation: the headers, which always match, tell of the difference.
constexpr int kSequenceMask = (1 << 27) - 1;
constexpr int kCountsTag = 1 << 27;
constexpr int kTransferTag = 1 << 28;
constexpr int kDataTag = 1 << 30;

// `kind` tells apart messages of one operation.
int data_tag(const OpDescriptor& descriptor, std::uint64_t sequence, std::uint64_t kind);
int header_tag(std::uint64_t sequence);

// A descriptor as the bytes that travel, and back.
at::Tensor header_tensor(const OpDescriptor& descriptor);
OpDescriptor read_header(const at::Tensor& bytes);

// Bytes of a contiguous tensor: any dtype travels.
at::Tensor as_bytes(const at::Tensor& tensor);

class GlooExchange;

// Something under way. Messages hold the connections open: when the group stops, all are dropped, so that the other
// ranks are woken.
class GlooWork : public Work {
 public:
  using Live = std::set<GlooWork*>;
  explicit GlooWork(std::shared_ptr<Live> live) : live_(std::move(live)) { live_->insert(this); }
  ~GlooWork() override { live_->erase(this); }
  GlooWork(const GlooWork&) = delete;
  GlooWork& operator=(const GlooWork&) = delete;
  virtual void drop_messages() noexcept = 0;

 private:
  std::shared_ptr<Live> live_;
};

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const GlooOptions& options) : options_(options) {
    if (options_.size > 1) transport_ = GlooTransport::connect(options_);
    sent_.resize(options_.size, 0);
    received_.resize(options_.size, 0);
  }
  ~GlooCommunicator() override {
    if (transport_) transport_->leave();
    drop_all();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string backend_name() const override { return "gloo"; }

  std::unique_ptr<Work> all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> all_reduce(const at::Tensor& tensor, ReduceOp op, const Tag& tag) override;
  std::unique_ptr<Work> broadcast(const at::Tensor& tensor, int root, const Tag& tag) override;
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) override;
  std::unique_ptr<Work> send(const at::Tensor& tensor, int to, const Tag& tag) override;
  std::unique_ptr<Work> recv(const at::Tensor& tensor, int from, const Tag& tag) override;
  void barrier(const Tag& tag) override;
  std::unique_ptr<SharedMemory> allocate_shared(std::int64_t /*bytes*/) override { return nullptr; }
  void abort(const std::string& reason) noexcept override;
  double waited_seconds() const override { return waited_seconds_; }

 private:
  friend class GlooExchange;
  friend class GlooTransfer;
  using Piece = std::function<at::Tensor(int peer)>;  // bytes to or from a peer; undefined or empty: nothing

  std::unique_ptr<GlooExchange> start(const OpDescriptor& descriptor, const Piece& outgoing, const Piece& incoming);
  void throw_if_stopped();
  std::chrono::milliseconds left_until(GlooClock::time_point deadline) const;
  GlooClock::time_point deadline() const {
    return GlooClock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(options_.timeout_seconds * 1000));
  }
  [[noreturn]] void peer_failed(int peer, const OpDescriptor& descriptor, GlooClock::time_point started);
  [[noreturn]] void report_mismatch(const std::vector<OpDescriptor>& by_rank, std::uint64_t sequence);
  [[noreturn]] void stop(const std::string& reason);
  bool set_reason(const std::string& reason) noexcept;
  void drop_all() noexcept {
    for (GlooWork* work : *live_) work->drop_messages();
  }

  const GlooOptions options_;
  const std::shared_ptr<GlooWork::Live> live_ = std::make_shared<GlooWork::Live>();
  std::unique_ptr<GlooTransport> transport_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sent_;      // messages to each rank
  std::vector<std::uint64_t> received_;  // messages asked from each rank
  CallCounts calls_;
  double waited_seconds_ = 0;
  std::optional<std::string> stopped_;
};

// A collective under way: its header to and from every rank, and the pieces.
class GlooExchange final : public GlooWork {
 public:
  GlooExchange(GlooCommunicator& communicator, const OpDescriptor& descriptor)
      : GlooWork(communicator.live_), communicator_(communicator), descriptor_(descriptor) {}
  void wait() override;
  void drop_messages() noexcept override {
    for (auto* list : {&header_sends, &header_recvs, &sends, &recvs}) list->clear();
  }

  using Message = GlooTransport::Message;
  std::vector<at::Tensor> headers;  // by rank, own included
  std::vector<std::unique_ptr<Message>> header_sends, header_recvs, sends, recvs;
  std::function<void()> finish;                                 // after all pieces have come
  std::function<std::unique_ptr<GlooExchange>()> continuation;  // then: a second exchange of the same operation

 private:
  void check_headers();

  GlooCommunicator& communicator_;
  OpDescriptor descriptor_;
  bool finished_ = false;
};

}  // namespace intarsia::comm
