"""Faults of the kinds that sharded training systems have had: name -> place, what is planted, who should notice."""

GRID = {"parity_tests": "Covering/Grid.*"}
CURVES = {"parity_tests": "*Curves.*-*Slow*"}
ENGINE = {"shard_tests": "*"}

FAULTS = {
    "a missed micro-step": {
        "file": "intarsia/shard/reducer.cc",
        "find": "  if (landed.sum.defined()) landed.sum.add_(landed.part);",
        "plant": "  if (landed.sum.defined() && micro_step_ != 2) landed.sum.add_(landed.part);",
        "tests": {"parity_tests": "*Layouts.StagesAgreeWithAccumulation"},
    },
    "a norm counted twice": {
        "file": "intarsia/shard/engine.cc",
        "find": "    own += tensor::square_sum_of(FlatState::piece(state.grad, state.grad_range, state.own));",
        "plant": "    own += tensor::square_sum_of(state.grad);",
        "tests": ENGINE,
    },
    "the norm leaves a rank's blocks out": {
        "file": "intarsia/shard/engine.cc",
        "find": "plan_.grid().rank_of_piece(piece) * blocks + before;",
        "plant": "piece * blocks + before;",
        "tests": GRID,
    },
    "a stale window": {
        "file": "intarsia/shard/engine.cc",
        "find": "  detach(unit);\n  if (expected_ < 0",
        "plant": "  if (expected_ < 0",
        "tests": ENGINE,
    },
    "a reduction that nobody waits for": {
        "file": "intarsia/shard/reducer.cc",
        "find": "  const at::NoGradGuard no_grad;\n  land();\n  if (!trees_.empty())",
        "plant": "  const at::NoGradGuard no_grad;\n  if (!trees_.empty())",
        "tests": GRID,
    },
    "weights gathered before the update": {
        "file": "intarsia/shard/engine.cc",
        "find": "  forget_expected();  // of a pass without backward: it has old weights",
        "plant": "  (void)0;",
        "tests": ENGINE,
    },
    "two units in one slot": {
        "file": "intarsia/shard/gather_ring.cc",
        "find": "  *free = true;",
        "plant": "  *free = false;",
        "tests": GRID,
    },
    "a wrong border": {
        "file": "intarsia/plan/placement.cc",
        "find": "layout.shard(first + grid.replicas - 1).end};",
        "plant": "layout.shard(first + grid.replicas - 1).end - kShardBlock};",
        "tests": {"plan_tests": "Placement.*"},
    },
    "replicas are not added": {
        "file": "intarsia/shard/reducer.cc",
        "find": "      start(*axes_.replicate, piece(Rest::kSpread), piece(Rest::kSharded), tag)->wait();",
        "plant": "      (void)0;",
        "tests": GRID,
    },
    "second copies are not renewed": {
        "file": "intarsia/shard/engine.cc",
        "find": "    expand(plan_, axes_, *state.layout, state.compute, state.held, plan_.placement.optimizer, plan_.placement.params,\n           \"gather updated parameters\");",
        "plant": "    (void)state;",
        "tests": GRID,
    },
    "the tree forgets a level": {
        "file": "intarsia/shard/tree_sum.cc",
        "find": "  for (std::size_t level = 0; level < level_of(step); ++level)",
        "plant": "  for (std::size_t level = 1; level < level_of(step); ++level)",
        "tests": {"shard_tests": "TreeSum.*"},
    },
    "sums in sequence, not in a tree": {
        "file": "intarsia/comm/reduce.cc",
        "find": "    const auto level = static_cast<std::size_t>(std::countr_one(i));",
        "plant": "    const auto level = static_cast<std::size_t>(std::countr_one(i) > 0 ? 1 : 0);",
        "tests": {"comm_tests": "*MovesAndAddsRight/threads_4*"},
    },
    "ranks take another micro-batch": {
        "file": "intarsia/plan/placement.cc",
        "find": "      return (grid.replica_of(rank) * steps + step) * grid.shards + grid.shard_of(rank);",
        "plant": "      return rank * steps + step;",
        "tests": GRID,
    },
    "an unused parameter keeps its old gradient": {
        "file": "intarsia/shard/reducer.cc",
        "find": "    if (done < end) of_flat.buffer.narrow(0, done, end - done).zero_();",
        "plant": "    if (done < end) return;",
        "tests": GRID,
    },
    "a window begins with the last one's sums": {
        "file": "intarsia/shard/reducer.cc",
        "find": "trees_.empty() && states_[flat].layout->trainable) states_[flat].grad.zero_();",
        "plant": "trees_.empty() && false) states_[flat].grad.zero_();",
        "tests": CURVES,
    },
    "the loss scale of the next step unscales": {
        "file": "intarsia/optim/update.cc",
        "find": "  result.loss_scale = loss_scale.scale();",
        "plant": "  result.loss_scale = 2 * loss_scale.scale();",
        "tests": GRID | {"optim_tests": "*"},
    },
    "an overflow is applied": {
        "file": "intarsia/optim/update.cc",
        "find": "  result.skipped = result.tokens == 0 || overflow || !std::isfinite(result.loss);",
        "plant": "  result.skipped = result.tokens == 0 || !std::isfinite(result.loss);",
        "tests": {"parity_tests": "Grid.TheOracleTrains"},
    },
    "the hysteresis is off by one": {
        "file": "intarsia/optim/loss_scale.cc",
        "find": "state_.hysteresis_left == 1",
        "plant": "state_.hysteresis_left == 0",
        "tests": {"optim_tests": "LossScale.*"},
    },
    "clipping by another limit": {
        "file": "intarsia/optim/clipping.h",
        "find": "result.factor = limit / (result.norm + 1e-6);",
        "plant": "result.factor = limit / (result.norm + 1e-3);",
        "tests": {"optim_tests": "*"} | CURVES,
    },
    "the mean over ranks only": {
        "file": "intarsia/train/step.cc",
        "find": "    own.targets += batch.num_targets;",
        "plant": "    own.targets = batch.num_targets;",
        "tests": CURVES,
    },
    "the embedding's second use is lost": {
        "file": "intarsia/shard/engine.cc",
        "find": "      for (int use = 0; use < parameters_.uses(slot.param); ++use)",
        "plant": "      for (int use = 0; use < 1; ++use)",
        "tests": CURVES,
    },
    "a checkpoint's pieces are the neighbour's": {
        "file": "intarsia/checkpoint/inventory.cc",
        "find": "plan.grid().rank_of_piece(piece)",
        "plant": "((piece + 1) % layout.num_shards)",
        "tests": {"checkpoint_tests": "*"},
    },
    "a short share of samples": {
        "file": "intarsia/data/sampler.cc",
        "find": "  return {begin, begin + base + (rank < longer ? 1 : 0)};",
        "plant": "  return {begin, begin + base};",
        "tests": {"data_tests": "*Sampler*"},
    },
    "a gather that stops early": {
        "file": "intarsia/comm/backends/region_collectives.cc",
        "find": "for (int peer = 0; peer < size_; ++peer) copy_bytes(to + peer * bytes + begin, staged(peer), length);",
        "plant": "for (int peer = 0; peer + 1 < size_; ++peer) copy_bytes(to + peer * bytes + begin, staged(peer), length);",
        "tests": {"comm_tests": "*MovesAndAddsRight/threads_copy_2*"},
    },
    "bias correction with the step before": {
        "file": "intarsia/tensor/kernels/adamw.cc",
        "find": "  const auto k = static_cast<double>(step.update);",
        "plant": "  const auto k = static_cast<double>(step.update + 1);",
        "tests": {"optim_tests": "*", "tensor_tests": "*"} | CURVES,
    },
}
