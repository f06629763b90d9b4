#include "intarsia/plan/memory/ghost.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "intarsia/base/error.h"

namespace intarsia::plan {

struct GhostStorage {
  GhostStorage(Ledger& booked_to, Holding booked_as, std::int64_t size)
      : ledger(booked_to), holding(booked_as), bytes(size) {
    ledger.book(holding, bytes);
  }
  ~GhostStorage() { ledger.book(holding, -bytes); }
  GhostStorage(const GhostStorage&) = delete;
  GhostStorage& operator=(const GhostStorage&) = delete;

  Ledger& ledger;
  Holding holding;
  std::int64_t bytes;
};

// One step of the backward pass. Its gradient gathers here until all that read the tensor have run.
struct GhostNode {
  struct Edge {
    std::shared_ptr<GhostNode> to;
    std::int64_t numel = 0;
  };
  std::int64_t order = 0;
  std::vector<Edge> edges;
  std::function<std::vector<Ghost>(const Ghost&)> backward;  // one gradient an edge
  std::function<void()> before;
  std::function<void(const Ghost&)> take;  // of a parameter
  bool keeps_grad = false;                 // of a detached leaf
  Ghost grad;
};

namespace {

bool owned_alone(const Ghost& x) { return x.storage != nullptr && x.storage.use_count() == 1; }

// Two gradients of one tensor are added in place where nobody else holds either.
void accumulate(GhostTape& tape, GhostNode& node, Ghost grad) {
  if (!node.grad.defined()) {
    node.grad = std::move(grad);
  } else if (!owned_alone(node.grad)) {
    node.grad = owned_alone(grad) ? std::move(grad) : tape.empty(node.grad.numel, node.grad.dtype);
  }
}

// Two matrix products, the half below the diagonal unless there is a mask.
double attention_flops(double query_numel, const GhostTape::AttentionShape& shape) {
  return (shape.masked ? 4.0 : 2.0) * query_numel * static_cast<double>(shape.length);
}

}  // namespace

Ghost GhostTape::empty(std::int64_t numel, DType dtype) {
  Ghost out{.numel = numel, .dtype = dtype, .storage = nullptr, .node = nullptr};
  if (!stopped_) out.storage = std::make_shared<GhostStorage>(ledger_, holding_, out.nbytes());
  return out;
}

Holding GhostTape::set_holding(Holding holding) { return std::exchange(holding_, holding); }
bool GhostTape::set_grad_enabled(bool enabled) { return std::exchange(grad_enabled_, enabled); }

bool GhostTape::set_stopped(bool stopped) { return std::exchange(stopped_, stopped); }

void GhostTape::keep_products(std::vector<Ghost>* kept, bool take) {
  products_ = kept;
  take_products_ = take;
  next_product_ = 0;
}

void GhostTape::count(Work::Kind kind, double flops, double bytes) {
  if (stopped_) return;
  work_.push_back({.kind = kind, .flops = flops, .bytes = bytes, .backward = in_backward_});
}

void GhostTape::elementwise(const Ghost& like, double tensors) {
  count(Work::Kind::kElementwise, static_cast<double>(like.numel), tensors * static_cast<double>(like.nbytes()));
}

Ghost GhostTape::record(Ghost out, const std::vector<Ghost>& inputs, std::function<Gradients(const Ghost&)> backward) {
  out.node.reset();
  if (!grad_enabled_ || std::ranges::none_of(inputs, [](const Ghost& x) { return x.needs_grad(); })) return out;
  out.node = std::make_shared<GhostNode>();
  out.node->order = ++order_;
  for (const Ghost& input : inputs) out.node->edges.push_back({input.node, input.numel});
  out.node->backward = std::move(backward);
  return out;
}

Ghost GhostTape::weight(std::int64_t numel, DType dtype, std::function<void(const Ghost&)> take) {
  Ghost out{.numel = numel, .dtype = dtype, .storage = nullptr, .node = nullptr};
  if (!grad_enabled_ || !take) return out;
  out.node = std::make_shared<GhostNode>();
  out.node->order = std::numeric_limits<std::int64_t>::max();  // handed over as soon as it is there
  out.node->take = std::move(take);
  return out;
}

Ghost GhostTape::leaf(Ghost x) {
  x.node = std::make_shared<GhostNode>();
  x.node->order = ++order_;
  x.node->keeps_grad = true;
  return x;
}

Ghost GhostTape::leaf_grad(const Ghost& leaf) const { return leaf.node ? leaf.node->grad : Ghost{}; }

Ghost GhostTape::pass(const Ghost& x, std::function<void()> after) {
  return record(x, {x}, [after = std::move(after)](const Ghost& grad) {
    after();
    return Gradients{grad};
  });
}

void GhostTape::before_backward(const Ghost& x, std::function<void()> before) {
  if (x.node) x.node->before = std::move(before);
}

Ghost GhostTape::custom(const Ghost& input, const Ghost& output, std::function<Ghost(const Ghost&)> backward) {
  Ghost out = output;
  // A recomputed block needs a backward for its parameters, even when its input needs none.
  out.node = std::make_shared<GhostNode>();
  out.node->order = ++order_;
  out.node->edges.push_back({input.node, input.numel});
  out.node->backward = [backward = std::move(backward)](const Ghost& grad) { return Gradients{backward(grad)}; };
  return out;
}

Ghost GhostTape::to(const Ghost& x, DType dtype) {
  if (x.dtype == dtype) return x;
  Ghost out = empty(x.numel, dtype);
  elementwise(out, 1);
  elementwise(x, 1);
  return record(std::move(out), {x}, [this, from = x.dtype](const Ghost& grad) {
    elementwise(grad, 2);
    return Gradients{empty(grad.numel, from)};
  });
}

Ghost GhostTape::add(const Ghost& a, const Ghost& b) {
  Ghost out = empty(a.numel, a.dtype);
  elementwise(out, 3);
  return record(std::move(out), {a, b}, [](const Ghost& grad) { return Gradients{grad, grad}; });
}

Ghost GhostTape::mul(const Ghost& a, const Ghost& b) {
  Ghost out = empty(a.numel, a.dtype);
  elementwise(out, b.numel == a.numel ? 3 : 2);
  const Ghost keep_a = b.needs_grad() ? saved(a) : Ghost{};
  const Ghost keep_b = a.needs_grad() ? saved(b) : Ghost{};
  return record(std::move(out), {a, b}, [this, keep_a, keep_b](const Ghost& grad) {
    Gradients out_grads(2);
    if (keep_b.defined()) {
      out_grads[0] = empty(grad.numel, grad.dtype);
      elementwise(grad, 3);
    }
    if (keep_a.defined()) {
      out_grads[1] = empty(grad.numel, grad.dtype);
      elementwise(grad, 3);
    }
    return out_grads;
  });
}

Ghost GhostTape::neg(const Ghost& x) {
  Ghost out = empty(x.numel, x.dtype);
  elementwise(out, 2);
  return record(std::move(out), {x}, [this](const Ghost& grad) {
    elementwise(grad, 2);
    return Gradients{empty(grad.numel, grad.dtype)};
  });
}

Ghost GhostTape::drop_out(const Ghost& x) {
  const Ghost mask = empty(x.numel, DType::kBool);
  Ghost out = empty(x.numel, x.dtype);
  { const Ghost mask_as_factor = empty(x.numel, x.dtype); }  // mul_ of another type makes a copy in its own
  elementwise(out, 3);
  return record(std::move(out), {x}, [this](const Ghost& grad) {
    const Ghost drawn = empty(grad.numel, DType::kBool);
    elementwise(grad, 3);
    Ghost out_grad = empty(grad.numel, grad.dtype);
    { const Ghost mask_as_factor = empty(grad.numel, grad.dtype); }
    return Gradients{std::move(out_grad)};
  });
}

Ghost GhostTape::slice(const Ghost& x, std::int64_t numel) {
  Ghost out = x;
  out.numel = numel;
  return record(std::move(out), {x}, [this, whole = x.numel](const Ghost& grad) {
    Ghost out_grad = empty(whole, grad.dtype);
    elementwise(out_grad, 1);
    elementwise(grad, 2);
    return Gradients{out_grad};
  });
}

Ghost GhostTape::copy(const Ghost& x) {
  Ghost out = empty(x.numel, x.dtype);
  elementwise(out, 2);
  return record(std::move(out), {x}, [](const Ghost& grad) { return Gradients{grad}; });
}

Ghost GhostTape::cat(const Ghost& a, const Ghost& b) {
  Ghost out = empty(a.numel + b.numel, a.dtype);
  elementwise(out, 2);
  return record(std::move(out), {a, b}, [na = a.numel, nb = b.numel](const Ghost& grad) {
    Ghost left = grad, right = grad;  // views
    left.numel = na;
    right.numel = nb;
    return Gradients{left, right};
  });
}

Ghost GhostTape::square(const Ghost& x) {
  Ghost out = empty(x.numel, x.dtype);
  elementwise(out, 2);
  return record(std::move(out), {x}, [this, x = saved(x)](const Ghost& grad) {
    // grad * (2 * x.pow(1)): two temporaries beside the result
    const Ghost power = empty(x.numel, x.dtype);
    const Ghost twice = empty(x.numel, x.dtype);
    elementwise(x, 7);
    return Gradients{empty(grad.numel, grad.dtype)};
  });
}

Ghost GhostTape::rsqrt_mean(const Ghost& x, std::int64_t width) {
  const std::int64_t rows = x.numel / width;
  Ghost out = empty(rows, x.dtype);
  elementwise(x, 1);
  Ghost kept = saved(out);
  return record(std::move(out), {x}, [this, kept, numel = x.numel](const Ghost& grad) {
    Ghost out_grad = empty(numel, grad.dtype);
    elementwise(out_grad, 1);
    return Gradients{out_grad};
  });
}

Ghost GhostTape::silu(const Ghost& x) {
  Ghost out = empty(x.numel, x.dtype);
  elementwise(out, 2);
  return record(std::move(out), {x}, [this, x = saved(x)](const Ghost& grad) {
    elementwise(grad, 3);
    return Gradients{empty(x.numel, grad.dtype)};
  });
}

Ghost GhostTape::layer_norm(const Ghost& x, const Ghost& weight, const Ghost& bias) {
  Ghost out = empty(x.numel, x.dtype);
  const std::int64_t width = weight.numel;
  const Ghost statistics = empty(2 * x.numel / width, x.dtype);
  elementwise(out, 3);
  return record(std::move(out), {x, weight, bias}, [this, x = saved(x), statistics, width](const Ghost& grad) {
    elementwise(grad, 4);
    Gradients grads{empty(x.numel, grad.dtype)};
    const Holding before = set_holding(Holding::kWeightGrads);
    grads.push_back(empty(width, grad.dtype));
    grads.push_back(empty(width, grad.dtype));
    set_holding(before);
    return grads;
  });
}

Ghost GhostTape::linear(const Ghost& x, const Ghost& weight, std::int64_t rows, const Ghost& bias) {
  const std::int64_t in = x.numel / rows, out_width = weight.numel / in;
  const bool taken = products_ != nullptr && take_products_ && next_product_ < products_->size();
  Ghost out = taken ? (*products_)[next_product_++] : empty(rows * out_width, x.dtype);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(weight.numel);
  const auto bytes = static_cast<double>(x.nbytes() + weight.nbytes() + out.nbytes());
  if (!taken) count(Work::Kind::kMatmul, flops, bytes);
  if (products_ != nullptr && !take_products_) products_->push_back(saved(out));
  return record(std::move(out), {x, weight, bias},
                [this, kept = weight.needs_grad() ? saved(x) : Ghost{}, x_numel = x.numel,
                 bias_needs = bias.needs_grad(), weight_numel = weight.numel, x_needs = x.needs_grad(),
                 weight_needs = weight.needs_grad(), flops, bytes](const Ghost& grad) {
                  Gradients grads(3);
                  if (bias_needs) grads[2] = grad;  // summed over rows as it is handed on
                  if (x_needs) {
                    grads[0] = empty(x_numel, grad.dtype);
                    count(Work::Kind::kMatmul, flops, bytes);
                  }
                  if (weight_needs) {
                    const Holding before = set_holding(Holding::kWeightGrads);
                    grads[1] = empty(weight_numel, grad.dtype);
                    set_holding(before);
                    count(Work::Kind::kMatmul, flops, bytes);
                  }
                  return grads;
                });
}

Ghost GhostTape::embedding(const Ghost& weight, std::int64_t rows, std::int64_t width) {
  Ghost out = empty(rows * width, weight.dtype);
  elementwise(out, 2);
  return record(std::move(out), {weight}, [this, numel = weight.numel](const Ghost& grad) {
    const Holding before = set_holding(Holding::kWeightGrads);
    Ghost out_grad = empty(numel, grad.dtype);
    set_holding(before);
    elementwise(out_grad, 1);
    elementwise(grad, 2);
    return Gradients{out_grad};
  });
}

Ghost GhostTape::attention(const Ghost& q, const Ghost& k, const Ghost& v, const AttentionShape& shape) {
  Ghost out = empty(q.numel, q.dtype);
  const Ghost log_sums = empty(shape.batch * shape.heads * shape.length, DType::kF32);
  const double flops = attention_flops(static_cast<double>(q.numel), shape);
  const auto bytes = static_cast<double>(2 * q.nbytes() + k.nbytes() + v.nbytes());
  count(Work::Kind::kAttention, flops, bytes);
  const Ghost kept = saved(out);
  return record(std::move(out), {q, k, v},
                [this, q = saved(q), k = saved(k), v = saved(v), kept, log_sums, flops, bytes](const Ghost& grad) {
                  count(Work::Kind::kAttention, 2.5 * flops, 2 * bytes);
                  return Gradients{empty(q.numel, grad.dtype), empty(k.numel, grad.dtype), empty(v.numel, grad.dtype)};
                });
}

Ghost GhostTape::attention_of_one(const Ghost& qkv, const AttentionShape& shape) {
  const std::int64_t third = qkv.numel / 3;
  Ghost out = empty(third, qkv.dtype);
  const Ghost log_sums = empty(shape.batch * shape.heads * shape.length, DType::kF32);
  const double flops = attention_flops(static_cast<double>(third), shape);
  const auto bytes = static_cast<double>(qkv.nbytes() + out.nbytes());
  count(Work::Kind::kAttention, flops, bytes);
  const Ghost kept = saved(out);
  return record(std::move(out), {qkv},
                [this, qkv = saved(qkv), kept, log_sums, third, flops, bytes](const Ghost& grad) {
                  count(Work::Kind::kAttention, 2.5 * flops, 2 * bytes);
                  const Ghost parts = empty(3 * third, grad.dtype);  // three gradients, then one tensor of all
                  elementwise(parts, 2);
                  return Gradients{empty(qkv.numel, grad.dtype)};
                });
}

Ghost GhostTape::cross_entropy(const Ghost& logits, std::int64_t rows, std::int64_t vocab) {
  const Ghost log_softmax = empty(rows * vocab, DType::kF32);
  elementwise(log_softmax, 3);
  return record(empty(1, DType::kF32), {logits}, [this, log_softmax](const Ghost&) {
    const Ghost of_loss = empty(log_softmax.numel, DType::kF32);
    elementwise(of_loss, 1);
    elementwise(of_loss, 3);
    return Gradients{empty(log_softmax.numel, DType::kF32)};
  });
}

void GhostTape::backward(const Ghost& root, const Ghost& seed) {
  if (!root.node) return;
  const bool grad_enabled = set_grad_enabled(false);
  const bool in_backward = std::exchange(in_backward_, true);
  const Holding holding = set_holding(Holding::kTemporaries);
  const auto later = [](const auto& a, const auto& b) { return a->order < b->order; };
  std::priority_queue<std::shared_ptr<GhostNode>, std::vector<std::shared_ptr<GhostNode>>, decltype(later)> ready(
      later);
  root.node->grad = seed;
  ready.push(root.node);
  while (!ready.empty()) {
    const std::shared_ptr<GhostNode> node = ready.top();
    ready.pop();
    if (node->keeps_grad) continue;  // leaf_grad() asks for it
    Ghost grad = std::exchange(node->grad, Ghost{});
    if (node->before) node->before();
    if (node->take) {
      node->take(grad);
      continue;
    }
    Gradients grads = node->backward(grad);
    grad = Ghost{};
    node->backward = nullptr;  // frees what was saved
    for (std::size_t i = 0; i < node->edges.size(); ++i) {
      const GhostNode::Edge& edge = node->edges[i];
      if (!edge.to || !grads[i].defined()) continue;
      if (grads[i].numel != edge.numel) grads[i] = empty(edge.numel, grads[i].dtype);  // summed over broadcast dims
      const bool known = edge.to->grad.defined();
      accumulate(*this, *edge.to, std::exchange(grads[i], Ghost{}));
      if (!known) ready.push(edge.to);
    }
    node->edges.clear();
  }
  set_holding(holding);
  in_backward_ = in_backward;
  set_grad_enabled(grad_enabled);
}

}  // namespace intarsia::plan
