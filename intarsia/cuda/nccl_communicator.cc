#include "intarsia/cuda/nccl_communicator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "intarsia/base/error.h"
#include "intarsia/comm/tree_of_tensors.h"

namespace intarsia::cuda {
namespace {

using comm::Tag;

// What c10d says becomes an error of ours that names the operation.
template <typename Fn>
auto named(const char* op, const Tag& tag, const Fn& fn) {
  try {
    return fn();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    fail(ErrorKind::kComm, op, " (unit '", tag.unit, "', ", tag.phase,
         ") over NCCL: ", text.substr(0, text.find('\n')));
  }
}

class NcclWork final : public comm::Work {
 public:
  NcclWork(const char* op, Tag tag, c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish = {})
      : op_(op), tag_(std::move(tag)), work_(std::move(work)), finish_(std::move(finish)) {}
  void wait() override {
    if (!work_) return;
    const at::NoGradGuard no_grad;
    named(op_, tag_, [&] {
      work_->wait();
      if (finish_) finish_();
    });
    work_.reset();
    finish_ = nullptr;
  }

 private:
  const char* op_;
  Tag tag_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
};

}  // namespace

NcclCommunicator::NcclCommunicator(const c10::intrusive_ptr<c10d::Store>& store, const std::string& axis, int rank,
                                   int size, double timeout_seconds)
    : rank_(rank), size_(size) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1000));
  group_ = named("connecting", {axis, "start"}, [&] {
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>("intarsia/nccl/" + axis, store), rank, size, options);
  });
}

NcclCommunicator::Started NcclCommunicator::exchange(const at::Tensor& out, const at::Tensor& in) {
  at::Tensor to = out, from = in;
  std::vector<std::int64_t> equal;  // empty: equal pieces
  return group_->all_to_all_single(to, from, equal, equal);
}

std::unique_ptr<comm::Work> NcclCommunicator::all_gather(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  at::Tensor to = out, from = in;
  return std::make_unique<NcclWork>("all_gather", tag,
                                    named("all_gather", tag, [&] { return group_->all_gather_single(to, from); }));
}

std::unique_ptr<comm::Work> NcclCommunicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                                             const Tag& tag) {
  const at::Tensor pieces = at::empty_like(in);
  return std::make_unique<NcclWork>(
      "reduce_scatter", tag, named("reduce_scatter", tag, [&] { return exchange(pieces, in); }), [this, pieces, out] {
        out.copy_(comm::reduce_rows_in_order(pieces.view({size_, -1}), comm::ReduceOp::kSum).view(out.sizes()));
      });
}

// Small tensors only ask for it (nothing of the engine's): every rank gathers all and adds.
std::unique_ptr<comm::Work> NcclCommunicator::all_reduce(const at::Tensor& tensor, comm::ReduceOp op, const Tag& tag) {
  at::Tensor all = at::empty({size_ * tensor.numel()}, tensor.options()), mine = tensor.view({-1});
  return std::make_unique<NcclWork>(
      "all_reduce", tag, named("all_reduce", tag, [&] { return group_->all_gather_single(all, mine); }),
      [this, all, tensor, op] {
        tensor.copy_(comm::reduce_rows_in_order(all.view({size_, -1}), op).view(tensor.sizes()));
      });
}

std::unique_ptr<comm::Work> NcclCommunicator::broadcast(const at::Tensor& tensor, int root, const Tag& tag) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return std::make_unique<NcclWork>("broadcast", tag,
                                    named("broadcast", tag, [&] { return group_->broadcast(tensors, options); }));
}

std::unique_ptr<comm::Work> NcclCommunicator::all_to_all(const at::Tensor& out, const at::Tensor& in, const Tag& tag) {
  return std::make_unique<NcclWork>("all_to_all", tag, named("all_to_all", tag, [&] { return exchange(out, in); }));
}

std::unique_ptr<comm::Work> NcclCommunicator::send(const at::Tensor& tensor, int to, const Tag& tag) {
  std::vector<at::Tensor> tensors{tensor};
  return std::make_unique<NcclWork>("send", tag, named("send", tag, [&] { return group_->send(tensors, to, 0); }));
}

std::unique_ptr<comm::Work> NcclCommunicator::recv(const at::Tensor& tensor, int from, const Tag& tag) {
  std::vector<at::Tensor> tensors{tensor};
  return std::make_unique<NcclWork>("recv", tag, named("recv", tag, [&] { return group_->recv(tensors, from, 0); }));
}

void NcclCommunicator::barrier(const Tag& tag) {
  named("barrier", tag, [&] { group_->barrier()->wait(); });
}

void NcclCommunicator::abort(const std::string&) noexcept {
  try {
    group_->abort();
  } catch (const std::exception&) {
    // Ranks that wait end at their deadline.
  }
}

}  // namespace intarsia::cuda
