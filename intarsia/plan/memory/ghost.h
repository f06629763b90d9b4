// Ghost tensors: the model's own operations without memory and without arithmetic. What remains is each tensor's bytes
// and lifetime (to a Ledger) and each operation's work. A model is written once more with them, line by line
// (model_ghost.h beside models/), and tests/plan holds the two together by the meter.
//
// Autograd is mirrored as far as memory goes: an operation saves what its formula in ATen saves, backward runs the
// latest operations first, frees what was saved as it goes, and hands a parameter's gradient over once it is complete.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "intarsia/base/dtype.h"
#include "intarsia/plan/memory/ledger.h"

namespace intarsia::plan {

// What one operation costs. flops: multiplications and additions; bytes: read and written at least once.
struct Work {
  enum class Kind { kMatmul, kAttention, kElementwise };
  Kind kind = Kind::kElementwise;
  double flops = 0;
  double bytes = 0;
  bool backward = false;
};

struct GhostStorage;
struct GhostNode;

// A tensor: copies share storage. Views are copies with another numel.
struct Ghost {
  std::int64_t numel = 0;
  DType dtype = DType::kF32;
  std::shared_ptr<GhostStorage> storage;  // null: somebody else's memory (a parameter)
  std::shared_ptr<GhostNode> node;        // null: needs no gradient

  bool defined() const { return numel > 0; }
  bool needs_grad() const { return node != nullptr; }
  std::int64_t nbytes() const { return numel * static_cast<std::int64_t>(dtype_size(dtype)); }
};

// A saved tensor keeps its memory alive, not its history.
inline Ghost saved(Ghost x) {
  x.node.reset();
  return x;
}

// Where ghosts are booked and operations are written down. Threads: one.
class GhostTape {
 public:
  explicit GhostTape(Ledger& ledger) : ledger_(ledger) {}

  Ghost empty(std::int64_t numel, DType dtype);
  // While set, operations take no memory and cost nothing: a second run has stopped before them. Returns what it was.
  bool set_stopped(bool stopped);
  // Recomputation that keeps products: linear() adds its results to `kept`, or takes them from it one by one when
  // `take`.
  void keep_products(std::vector<Ghost>* kept, bool take);
  // Memory made from now on counts as `holding`; returns what it was before.
  Holding set_holding(Holding holding);
  // Without: nothing is saved and nothing needs a gradient. Returns what it was before.
  bool set_grad_enabled(bool enabled);

  // A parameter that is read: bytes belong to the engine. `take` gets each gradient; it is freed afterwards.
  Ghost weight(std::int64_t numel, DType dtype, std::function<void(const Ghost&)> take);
  // `x` as a leaf of its own, whose gradient leaf_grad() gives after backward.
  Ghost leaf(Ghost x);
  Ghost leaf_grad(const Ghost& leaf) const;

  // Identity whose backward calls `after` (a unit's post-backward) and passes the gradient on.
  Ghost pass(const Ghost& x, std::function<void()> after);
  // `before` is called when the gradient of `x` is complete (a unit's pre-backward).
  void before_backward(const Ghost& x, std::function<void()> before);
  // An operation of its own (a recomputed piece): backward(grad) returns the gradient of `input`.
  Ghost custom(const Ghost& input, const Ghost& output, std::function<Ghost(const Ghost&)> backward);

  Ghost to(const Ghost& x, DType dtype);
  Ghost add(const Ghost& a, const Ghost& b);
  // Element by element, `b` may be broadcast to `a`. Saves what the other side's gradient needs.
  Ghost mul(const Ghost& a, const Ghost& b);
  Ghost neg(const Ghost& x);
  Ghost scale(const Ghost& x) { return neg(x); }  // by a number: makes the same, saves nothing
  // Some elements zero, the others scaled: drawn as bytes that go at once, in backward again.
  Ghost drop_out(const Ghost& x);
  // The first `numel` elements; backward makes a whole tensor of zeros and copies into it.
  Ghost slice(const Ghost& x, std::int64_t numel);
  // A copy of what a view shows (reshape of something that is not contiguous).
  Ghost copy(const Ghost& x);
  // Two halves one after another.
  Ghost cat(const Ghost& a, const Ghost& b);
  Ghost square(const Ghost& x);
  // Mean over the last dim of `width` elements, then 1 / sqrt.
  Ghost rsqrt_mean(const Ghost& x, std::int64_t width);
  Ghost silu(const Ghost& x);
  Ghost gelu(const Ghost& x) { return silu(x); }  // saves and makes the same
  // nn/functions.h: one operation forward and one backward.
  Ghost rms_norm(const Ghost& x, const Ghost& weight, std::int64_t width);
  Ghost rotate(const Ghost& x);
  Ghost swiglu(const Ghost& gate, const Ghost& up);
  // Over the last dim, which has the weight's size.
  Ghost layer_norm(const Ghost& x, const Ghost& weight, const Ghost& bias);
  // [rows, in] x [out, in]^T (or [in, out]) -> [rows, out], plus bias [out] where defined.
  Ghost linear(const Ghost& x, const Ghost& weight, std::int64_t rows, const Ghost& bias = {});
  Ghost embedding(const Ghost& weight, std::int64_t rows, std::int64_t width);
  struct AttentionShape {
    std::int64_t batch = 0, heads = 0, kv_heads = 0, length = 0, head_dim = 0;
    bool masked = false;  // scores are added to, so that the half above the diagonal is computed too
  };
  // Causal attention without materialised scores.
  // Source: FlashAttention-2 (arXiv 2307.08691); ATen's flash kernel for CPUs saves q, k, v, the output and log-sums.
  Ghost attention(const Ghost& q, const Ghost& k, const Ghost& v, const AttentionShape& shape);
  // The same where q, k and v are thirds of one tensor [rows, 3 width] -> [rows, width].
  Ghost attention_of_one(const Ghost& qkv, const AttentionShape& shape);
  // Sum of -log softmax over `rows` rows of `vocab` logits.
  Ghost cross_entropy(const Ghost& logits, std::int64_t rows, std::int64_t vocab);

  // nn/linear_cross_entropy.h: x [rows, in] by weight [vocab, in] and the loss; gradients are made in the forward.
  Ghost linear_cross_entropy(const Ghost& x, const Ghost& weight, std::int64_t rows, std::int64_t vocab);

  void backward(const Ghost& root, const Ghost& seed);

  // An operation that reads and writes `bytes` and makes nothing: the engine's own.
  void touch(std::int64_t bytes) { count(Work::Kind::kElementwise, 0, static_cast<double>(bytes)); }

  const std::vector<Work>& work() const { return work_; }
  void forget_work() { work_.clear(); }

 private:
  using Gradients = std::vector<Ghost>;
  Ghost record(Ghost out, const std::vector<Ghost>& inputs, std::function<Gradients(const Ghost&)> backward);
  void count(Work::Kind kind, double flops, double bytes);
  void elementwise(const Ghost& like, double tensors);

  Ledger& ledger_;
  Holding holding_ = Holding::kActivations;
  bool grad_enabled_ = true;
  bool in_backward_ = false;
  bool stopped_ = false;
  std::vector<Ghost>* products_ = nullptr;
  bool take_products_ = false;
  std::size_t next_product_ = 0;
  std::int64_t order_ = 0;
  std::vector<Work> work_;
};

}  // namespace intarsia::plan
