// What a configuration leaves to the planner: "auto" for the micro-batch and for the stage.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "intarsia/config/resolve.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/plan/memory/limits.h"
#include "intarsia/plan/time/cluster.h"

namespace intarsia::plan {

// What plan knows of the run without its data: samples of several documents are those of --pack isolate.
ReplayOptions replay_options(const config::TrainConfig& config);

// Where the run will be.
struct OpenRequest {
  MemoryLimit limit;                        // of a host
  int local_ranks = 1;                      // that share it
  std::optional<CommBackend> backend = {};  // where it is not the one asked for
  double margin = 0.05;                     // share of the limit that must stay free
  ClusterSpec cluster = find_cluster("cpu");
};

// Fills what `resolved` leaves open (BatchConfig::micro_is_open, ZeroConfig::stage_is_open) and says so in its reports,
// values and origins; returns true where something was open. A pure function of its arguments: the same on every rank
// whose host has the same limit.
//
// Candidates are the open stages (0 to 3; one rank: 0) times the open micro-batches: divisors of a rank's share of
// train_batch_size, or powers of two where no total is given. Of those whose replayed need leaves the margin free it
// takes the fastest by the time model on `cluster`; of those that are within 5 % of it a sample, the one that needs
// least memory. Where nothing fits it takes the smallest, and the check before the start says the rest.
// Errors: kConfig where no candidate can be planned, and with --reproducible, whose bits would follow the host.
bool settle_open(config::Resolved& resolved, const formats::HfConfig& model, const OpenRequest& request);

}  // namespace intarsia::plan
