// Builds what trains somebody's module, in order: ranks -> configuration -> plan -> engine -> optimizer.
#pragma once

#include <memory>
#include <string>

#include "intarsia/api/config.h"
#include "intarsia/comm/mesh.h"
#include "intarsia/nn/inspect.h"
#include "intarsia/optim/loss_scale.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/plan/run_plan.h"
#include "intarsia/shard/engine.h"

namespace intarsia::api {

struct Options {
  nn::WrapPolicy units = nn::wrap_marked();  // which modules become units, beside those that are Unit<M>
  nn::InitRule init = {};                    // of parameters on the meta device; absent: see nn::InspectOptions
  // Ranks that exist already (threads, say) and outlive the engine. Null: a launcher's environment says which rank this
  // process is, and without one it is alone. Given ranks are one shard group.
  comm::Communicator* ranks = nullptr;
};

// What a rank trains with. Declared in the order in which each stage is built from the earlier ones.
struct Assembly {
  std::unique_ptr<plan::RunPlan> plan;
  std::unique_ptr<comm::Mesh> mesh;  // null when Options::ranks were given
  nn::Inspected module;              // its leaves have moved into the engine
  std::unique_ptr<shard::Engine> engine;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::LossScale> loss_scale;
  std::int64_t micro_batch_size = 1;  // samples of one rank in one pass, as configured
  std::string config_json;            // the configuration in force
  std::int64_t log_every = 0;         // steps; 0: nobody asked
  std::int64_t keep = 0;              // checkpoints that stay; 0: all
};

// Collective over all ranks. Errors: those of configuration, rendezvous and nn::inspect, before memory is taken.
Assembly assemble(torch::nn::Module& module, const Config& config, const Options& options);

}  // namespace intarsia::api
