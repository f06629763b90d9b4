// ZeRO stage 3 by hand: one linear layer, two ranks (threads of this program), three steps of Adam.
//
// Each rank keeps half of the weight, half of the gradient and half of Adam's state. A step gathers the weight,
// computes with it, throws it away, reduces the gradient so that each rank receives the sum of its own half, and
// updates that half. A plain run without ranks is the oracle; every step is printed and checked. Source: ZeRO (arXiv
// 1910.02054), sections 5.3 and 7.2.2.
#include <ATen/ATen.h>

#include <cmath>
#include <iostream>
#include <mutex>

#include "intarsia/base/error.h"
#include "intarsia/comm/run_ranks.h"

namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kOut = 3, kIn = 4, kSamples = 6, kNumel = kOut * kIn, kShard = kNumel / kRanks;
std::mutex print_mutex;

at::Tensor weight() { return at::linspace(-1, 1, kNumel).view({kOut, kIn}); }
at::Tensor inputs() { return at::linspace(0, 2, kSamples * kIn).sin().view({kSamples, kIn}); }
at::Tensor targets() { return at::linspace(0, 3, kSamples * kOut).cos().view({kSamples, kOut}); }

// Gradient of sum((x W^T - y)^2) / kSamples by W: rows of x that another rank has are simply missing from the sum.
at::Tensor gradient(const at::Tensor& w, const at::Tensor& x, const at::Tensor& y) {
  return (x.matmul(w.t()) - y).t().matmul(x) * (2.0 / kSamples);
}

// Adam on however many elements: it never looks beyond its own.
struct Adam {
  at::Tensor m, v;
  int k = 0;
  explicit Adam(std::int64_t numel) : m(at::zeros({numel})), v(at::zeros({numel})) {}
  void update(at::Tensor w, const at::Tensor& g) {
    ++k;
    m.mul_(0.9).add_(g, 0.1);
    v.mul_(0.999).addcmul_(g, g, 0.001);
    w.sub_(0.1 * (m / (1 - std::pow(0.9, k))) / ((v / (1 - std::pow(0.999, k))).sqrt() + 1e-8));
  }
};

void check(bool holds, const std::string& what) {
  if (!holds) intarsia::fail(intarsia::ErrorKind::kInternal, "zero3_by_hand: ", what, " differs from the plain run");
}

void run_rank(intarsia::comm::Communicator& ranks) {
  const int rank = ranks.rank();
  const auto say = [&](const auto&... parts) {
    const std::lock_guard lock(print_mutex);
    std::cout << "rank " << rank << ": " << intarsia::concat(parts...) << "\n";
  };
  // 1. Shard: this rank keeps elements [rank * kShard, (rank + 1) * kShard) of the flat weight, and Adam's state of
  // them.
  at::Tensor shard = weight().flatten().narrow(0, rank * kShard, kShard).clone();
  Adam adam(kShard);
  // Each rank sees its own half of the samples.
  const at::Tensor x = inputs().narrow(0, rank * kSamples / kRanks, kSamples / kRanks);
  const at::Tensor y = targets().narrow(0, rank * kSamples / kRanks, kSamples / kRanks);

  at::Tensor plain = weight().flatten();  // the oracle
  Adam plain_adam(kNumel);
  for (int step = 1; step <= 3; ++step) {
    // 2. Gather: the whole weight, for as long as the layer computes.
    at::Tensor whole = at::empty({kNumel});
    ranks.all_gather(whole, shard, {"layer", "gather weight"})->wait();
    check(at::equal(whole, plain), "the gathered weight");
    const at::Tensor local = gradient(whole.view({kOut, kIn}), x, y).flatten();
    whole.reset();  // freed: between steps a rank holds half of it
    // 3. Reduce-scatter: the sum over ranks, but of this rank's half only.
    at::Tensor reduced = at::empty({kShard});
    ranks.reduce_scatter(reduced, local, {"layer", "reduce gradient"})->wait();
    const at::Tensor expected = gradient(plain.view({kOut, kIn}), inputs(), targets()).flatten();
    check(at::allclose(reduced, expected.narrow(0, rank * kShard, kShard), 1e-5, 1e-6), "the reduced gradient");
    // 4. Update: half of the weight, with half of the state.
    adam.update(shard, reduced);
    plain_adam.update(plain, expected);
    check(at::allclose(shard, plain.narrow(0, rank * kShard, kShard), 1e-5, 1e-6), "the updated shard");
    plain.narrow(0, rank * kShard, kShard).copy_(shard);  // same bits from here on, so that step 2 can ask for equality
    at::Tensor other = at::empty({kNumel});
    ranks.all_gather(other, shard, {"layer", "compare"})->wait();
    plain.copy_(other);
    say("step ", step, "  my gradient ", reduced[0].item<float>(), " ...  my weights ", shard[0].item<float>(), " ... ",
        shard[kShard - 1].item<float>(), "  (", kShard, " of ", kNumel, " elements)");
  }
}

}  // namespace

int main() {
  std::cout << "one layer of " << kNumel << " weights on " << kRanks << " ranks; a rank holds " << kShard
            << " weights, gradients and Adam states of each kind\n";
  intarsia::comm::run_ranks(kRanks, run_rank);
  std::cout << "every gathered weight, reduced gradient and updated shard equals the plain run\n";
  return 0;
}
