#include "intarsia/train/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "intarsia/comm/run_ranks.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/train/assemble.h"
#include "intarsia/train/step.h"

namespace intarsia::train {
namespace {

struct Profiled {
  TrainJob job;
  std::vector<std::unique_ptr<StepProfile>> profiles;
  std::vector<double> losses;  // of rank 0
};

// `steps` steps of a tiny model on two ranks, stage 3 without mapping.
Profiled run_profiled(int steps, bool watched, config::Recompute recompute = config::Recompute::kNone) {
  Profiled run;
  config::TrainConfig config;
  config.run.ranks = 2;
  config.run.force_copy = true;
  config.run.recompute = recompute;
  config.zero.stage = 3;
  config.batch.accumulation = 2;
  run.job.model = plan::find_model("llama-tiny").config;
  run.job.random_weights = true;
  run.job.plan = plan::make_run_plan(config, run.job.model, 16, steps);
  for (int rank = 0; rank < 2; ++rank) run.profiles.push_back(std::make_unique<StepProfile>(run.job.plan));
  comm::run_ranks(2,
                  [&](comm::Communicator& axis) {
                    StepProfile* profile =
                        watched ? run.profiles[static_cast<std::size_t>(axis.rank())].get() : nullptr;
                    WatchedAxes watch(axis, profile);
                    const comm::DataAxes axes = watch.axes();
                    const Assembly made = assemble(run.job, axes);
                    if (profile != nullptr) profile->clear();
                    const at::Tensor ids = at::arange(16, at::kLong).view({1, 16});
                    for (int step = 0; step < steps; ++step) {
                      const StepResult result = train_step(
                          *made.engine, *made.model, *made.optimizer, *made.loss_scale, 2,
                          [&](std::int64_t) {
                            return data::Batch{ids, ids, at::Tensor(), 15, {0}};
                          },
                          [] { return RankReport{}; }, {}, profile);
                      if (axis.rank() == 0) run.losses.push_back(result.loss);
                    }
                  },
                  {.force_copy = true, .timeout_seconds = 60});
  return run;
}

std::size_t count(const StepProfile& profile, Span::Kind kind) {
  return static_cast<std::size_t>(std::ranges::count(profile.spans(), kind, &Span::kind));
}

TEST(Profile, ChangesNothingOfTheStep) { EXPECT_EQ(run_profiled(3, true).losses, run_profiled(3, false).losses); }

TEST(Profile, PhasesFollowEachOtherAndCoverTheStep) {
  const Profiled run = run_profiled(2, true);
  const StepProfile& profile = *run.profiles[0];
  EXPECT_EQ(profile.steps(), 2);
  std::vector<std::string> names;
  double end = 0;
  for (const Span& span : profile.spans()) {
    if (span.kind != Span::Kind::kPhase) continue;
    if (end > 0 && span.name != "data") {
      EXPECT_DOUBLE_EQ(span.begin, end) << span.name;
    }
    end = span.end;
    if (names.empty() || names.back() != span.name) names.push_back(span.name);
  }
  const std::vector<std::string> micro = {"data", "forward", "backward"};
  std::vector<std::string> step = micro;
  step.insert(step.end(), micro.begin(), micro.end());
  for (const char* name : {"exchange", "totals and norm", "update"}) step.emplace_back(name);
  std::vector<std::string> both = step;
  both.insert(both.end(), step.begin(), step.end());
  EXPECT_EQ(names, both);
}

TEST(Profile, EveryUnitHasAForwardAndABackwardInEachMicroStep) {
  for (const auto recompute : {config::Recompute::kNone, config::Recompute::kFull}) {
    const Profiled run = run_profiled(1, true, recompute);
    const std::size_t units = run.job.plan.model.units.size();
    EXPECT_EQ(count(*run.profiles[0], Span::Kind::kForward), 2 * units);
    EXPECT_EQ(count(*run.profiles[0], Span::Kind::kBackward), 2 * units);
    EXPECT_EQ(run.profiles[0]->recompute_seconds() > 0, recompute == config::Recompute::kFull);
  }
}

TEST(Profile, CollectivesAreThoseOfThePlan) {
  const Profiled run = run_profiled(1, true);
  std::size_t planned = 0, seen = 0;
  for (const plan::Action& action : plan::replay_step(run.job.plan, run.job.model).actions)
    planned += action.kind == plan::ActionKind::kAllGather || action.kind == plan::ActionKind::kReduceScatter;
  for (const Span& span : run.profiles[0]->spans()) {
    if (span.kind != Span::Kind::kCollective) continue;
    EXPECT_GE(span.seconds(), span.waited);
    seen += span.op != comm::Op::kBarrier && !span.name.ends_with("(step totals)") &&
            !span.name.ends_with("(gradient norm)");
  }
  EXPECT_EQ(seen, planned);
}

TEST(Profile, TraceIsWhatTheViewersRead) {
  const Profiled run = run_profiled(2, true);
  const auto trace = nlohmann::json::parse(trace_json({run.profiles[0].get(), run.profiles[1].get()}));
  std::size_t events = 0;
  double first = 1e9;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++events;
    EXPECT_GE(event["dur"].get<double>(), 0);
    first = std::min(first, event["ts"].get<double>());
  }
  EXPECT_EQ(first, 0);
  EXPECT_EQ(events, run.profiles[0]->spans().size() + run.profiles[1]->spans().size());
}

TEST(Profile, TablesNameUnitsPhasesAndCollectives) {
  const Profiled run = run_profiled(2, true, config::Recompute::kFull);
  const plan::StepReplay replay = plan::replay_step(run.job.plan, run.job.model);
  const std::string text = profile_text(*run.profiles[0], run.job.plan, replay);
  for (const char* part : {"mean of 2", "backward", "of it recomputed", "model.layers.0", "GFLOP/s", "reduce_scatter"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const std::string short_text = profile_text(*run.profiles[0], run.job.plan, replay, 1);
  EXPECT_LT(short_text.size(), text.size());
  EXPECT_NE(phases_line(*run.profiles[0]).find("forward "), std::string::npos);
}

TEST(Profile, CountsOnlyTheOperationsThatAreAskedFor) {
  CollectiveTotals totals({"all_gather"});
  totals.add(
      {.kind = Span::Kind::kCollective, .name = "", .end = 1, .bytes = 8, .ranks = 2, .op = comm::Op::kAllGather});
  totals.add({.kind = Span::Kind::kCollective, .name = "", .end = 1, .bytes = 8, .ranks = 2, .op = comm::Op::kBarrier});
  EXPECT_NE(totals.text().find("all_gather"), std::string::npos);
  EXPECT_EQ(totals.text().find("barrier"), std::string::npos);
  EXPECT_EQ(CollectiveTotals().text(), "");
}

}  // namespace
}  // namespace intarsia::train
