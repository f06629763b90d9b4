// From a command line to ranks that can talk: threads, forked processes, or processes of a foreign launcher.
#pragma once

#include <functional>
#include <optional>

#include "intarsia/comm/data_axes.h"
#include "intarsia/launch/bind.h"
#include "intarsia/launch/environment.h"
#include "intarsia/plan/run_plan.h"

namespace intarsia::cli {

// Where this process stands before ranks are started.
struct RankSource {
  std::optional<launch::RankEnvironment> environment;  // a launcher started us as one of its ranks
  int ranks = 1;                                       // of the run
};

// `ranks_flag`: --ranks, or nothing. Errors: kUsage when flag and environment disagree, or for less than 1.
RankSource find_ranks(std::optional<int> ranks_flag);

// What one rank does. Returns its exit code.
using RankBody = std::function<int(const comm::DataAxes& axes)>;

// Starts the plan's ranks (or joins the launcher's), runs `body` in each with its communicators, and returns the
// exit code of the whole: see launch::run_local_ranks. A rank that throws takes the others with it; the message has
// rank and cause. plan.backend kThreads and kShm need local ranks; under a launcher of several processes gloo is used.
int run_ranks(const RankSource& source, const plan::RunPlan& plan, launch::Bind bind, const RankBody& body);

// The backend that run_ranks will use.
plan::CommBackend effective_backend(const RankSource& source, plan::CommBackend asked);

}  // namespace intarsia::cli
