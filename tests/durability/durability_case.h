// What the durability tests share: ranks that are processes, so that one can be killed, and checkpoints whose values
// tell which save they are of.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <set>

#include "intarsia/base/log.h"
#include "intarsia/checkpoint/testing_run.h"
#include "intarsia/comm/mesh.h"

namespace intarsia::checkpoint {

namespace fs = std::filesystem;

// How a rank's process ended; a signal counts as 128 + its number.
enum Ending { kEndSaved = 0, kEndAssertion = 1, kEndRefused = 3, kEndOtherRankDied = 4, kEndKilled = 137 };

// Runs body(rank's communicator) in `ranks` forked processes and waits for all. The caller has no threads.
inline std::vector<int> run_processes(int ranks, const std::function<int(comm::Communicator&)>& body) {
  plan::RunPlan plan;
  plan.ranks = ranks;
  plan.backend = plan::CommBackend::kShm;
  plan.comm_timeout_seconds = 60;
  const comm::SharedRegions regions = comm::shared_regions_for(plan, 1 << 20);
  std::fflush(nullptr);  // or the children print it again
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    int code = kEndAssertion;
    try {
      const auto mesh =
          comm::Mesh::create(plan, {.rank = rank, .world = ranks, .local_rank = rank, .regions = regions});
      code = body(mesh->world());
    } catch (const Error& error) {
      code = error.kind() == ErrorKind::kComm ? kEndOtherRankDied : kEndAssertion;
      if (code == kEndAssertion) log_error(error.what());
    }
    std::fflush(nullptr);
    std::_Exit(code == kEndSaved && ::testing::Test::HasFailure() ? kEndAssertion : code);
  }
  std::vector<int> codes(pids.size(), -1);
  for (std::size_t left = pids.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = ::wait(&status);  // at once, so that the others see that it has died
    const auto at = std::ranges::find(pids, ended) - pids.begin();
    codes[static_cast<std::size_t>(at)] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return codes;
}

// Values of save number `mark`, a different one for each element, kind, parameter and save.
inline at::Tensor marked_values(const LocalPiece& piece, std::int64_t mark) {
  return known_values(piece).add_(static_cast<double>(mark));
}

inline void fill_marked(TestRun& run, std::int64_t mark) {
  const at::NoGradGuard no_grad;
  for (const LocalPiece& piece : local_pieces(run.engine, *run.optimizer, Part::kHeld))
    piece.values.copy_(marked_values(piece, mark));
  run.optimizer->set_updates(mark);
}

inline bool holds_marked(TestRun& run, std::int64_t mark) {
  if (run.optimizer->updates() != mark) return false;
  for (const LocalPiece& piece : local_pieces(run.engine, *run.optimizer, Part::kHeld))
    if (!at::equal(piece.values, marked_values(piece, mark))) return false;
  return true;
}

// The `mark` stands in the manifest too, as the tokens seen.
inline SaveRequest marked_request(const std::string& root, std::int64_t step, std::int64_t mark, int keep) {
  return {.root = root,
          .progress = {.step = step, .data_position = 16 * step, .tokens = mark, .seed = 7},
          .config = "{\"train_batch_size\": 16}",
          .model_config = "{}",
          .keep = keep};
}

inline void save_marked(const SaveRequest& request, TestRun& run, bool background) {
  if (!background) {
    save_checkpoint(request, run.engine, *run.optimizer);
    return;
  }
  BackgroundSaver saver(run.engine, *run.optimizer);
  saver.start(request);
  fill_marked(run, 999);  // training goes on
  saver.wait();
}

// A save that is disturbed. Before it there are steps 10 and 20; it saves `step` as mark 30.
struct Scenario {
  const char* name;
  std::int64_t step;
  bool background;
};
inline constexpr Scenario kScenarios[] = {{"new step", 30, false},
                                          {"new step in the background", 30, true},
                                          {"step that exists", 20, false},
                                          {"step that exists, in the background", 20, true}};

class DurabilityTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    const std::vector<int> codes = run_processes(2, [&](comm::Communicator& axis) {
      TestRun run(run_plan(odd_model(), 2, 3), axis);
      for (const int step : {10, 20}) {
        fill_marked(run, step);
        save_marked(marked_request(template_root(), step, step, 0), run, false);
      }
      return kEndSaved;
    });
    ASSERT_EQ(codes, (std::vector<int>{0, 0}));
  }
  std::string template_root() const { return folder_ + "/template"; }
  void start_over() const {
    fs::remove_all(root());
    fs::copy(template_root(), root(), fs::copy_options::recursive);
  }

  // The disturbed save, on two ranks; `arm` is called on each right before it and `disarm` right after it.
  std::vector<int> disturbed_save(const Scenario& scenario, const std::function<void(int)>& arm,
                                  const std::function<void(int)>& disarm = {}) const {
    return run_processes(2, [&](comm::Communicator& axis) {
      TestRun run(run_plan(odd_model(), 2, 3), axis);
      fill_marked(run, 30);
      axis.barrier({"", "ready"});
      arm(axis.rank());
      try {
        save_marked(marked_request(root(), scenario.step, 30, 2), run, scenario.background);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kIo) throw;
        return kEndRefused;
      }
      if (disarm) disarm(axis.rank());
      return kEndSaved;
    });
  }

  // Loads the newest checkpoint on one rank and returns its mark; 0 when nothing, or not just what it marks, is loaded.
  std::int64_t loaded_mark(TestRun& run) const {
    const Found found = load_newest(root(), run.engine, *run.optimizer);
    if (!found.path) return 0;
    const std::int64_t mark = found.manifest->progress.tokens;
    return holds_marked(run, mark) ? mark : 0;
  }

  // Names in ROOT, and in its folders, that no complete checkpoint has.
  std::vector<std::string> debris() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(root())) {
      const std::string name = entry.path().filename();
      if (name == "latest") continue;
      if (!entry.is_directory() || name.find('.') != std::string::npos) {
        found.push_back(name);
        continue;
      }
      std::set<std::string> files{"manifest.json"};
      for (const StoredFile& file : read_manifest(entry.path()).files) files.insert(file.name);
      for (const auto& file : fs::directory_iterator(entry.path()))
        if (files.erase(file.path().filename()) == 0) found.push_back(name + "/" + file.path().filename().string());
      if (!files.empty()) found.push_back(name + " lacks " + *files.begin());
    }
    return found;
  }
};

}  // namespace intarsia::checkpoint
