// Saves and loads of llama-110m's training state (1.3 GB: fp32 masters and Adam's moments), stage 3, ranks as threads.
// Usage: checkpoint_bench FOLDER [ROUNDS]      prints a JSON line for each measurement; bench/checkpoint.py collects
// them.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "intarsia/base/text.h"
#include "intarsia/checkpoint/inventory.h"
#include "intarsia/checkpoint/load.h"
#include "intarsia/checkpoint/save.h"
#include "intarsia/comm/run_ranks.h"
#include "intarsia/io/file.h"
#include "intarsia/plan/arch/llama.h"
#include "intarsia/plan/make_run_plan.h"
#include "intarsia/plan/weight_source.h"

namespace intarsia::bench {
namespace {

namespace fs = std::filesystem;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void print(const char* what, double seconds, double bytes) {
  std::printf("{\"system\": \"intarsia\", \"what\": \"%s\", \"seconds\": %.4f, \"bytes\": %.0f}\n", what, seconds,
              bytes);
  std::fflush(stdout);
}

// The files leave the page cache.
void forget(const std::string& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const io::Fd fd = io::open_read(entry.path().string());
    ::fdatasync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

class State {
 public:
  State(int ranks, comm::Communicator& axis)
      : weights_(1),
        plan_(plan_of(ranks)),
        engine(plan_, axis, weights_),
        optimizer(optim::make_optimizer(plan_, engine.states(), axis)) {
    const at::NoGradGuard no_grad;
    for (const checkpoint::LocalPiece& piece : pieces()) piece.values.normal_();
  }

  std::vector<checkpoint::LocalPiece> pieces() {
    return checkpoint::local_pieces(engine, *optimizer, checkpoint::Part::kShard);
  }
  std::int64_t bytes() {
    std::int64_t out = 0;
    for (const checkpoint::LocalPiece& piece : pieces()) out += static_cast<std::int64_t>(piece.values.nbytes());
    return out;
  }

 private:
  static plan::RunPlan plan_of(int ranks) {
    config::TrainConfig config;
    config.run.ranks = ranks;
    config.zero.stage = 3;
    config.batch = {ranks, 1, 1};
    return plan::make_run_plan(config, plan::preset("llama-110m").value(), 256, 1);
  }
  plan::RandomWeights weights_;
  plan::RunPlan plan_;

 public:
  shard::Engine engine;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// Seconds of `action` on all ranks, from a common start to a common end.
template <typename Action>
double together(comm::Communicator& axis, const Action& action) {
  axis.barrier({"", "begin"});
  const double begin = now();
  action();
  axis.barrier({"", "end"});
  return now() - begin;
}

// What the disk takes: each rank writes as much as its shard, in parts of 4 MiB, and fsyncs. Plainly, through the page
// cache, which Linux begins to empty only at the end; or past it (O_DIRECT), which shows the disk itself.
void write_plain(const std::string& path, std::int64_t bytes, bool direct) {
  const at::Tensor memory = at::rand({(1 << 20) + 1024});
  const auto skipped = (4096 - reinterpret_cast<std::uintptr_t>(memory.const_data_ptr()) % 4096) % 4096 / 4;
  const at::Tensor part = memory.narrow(0, static_cast<std::int64_t>(skipped), 1 << 20);
  const io::Fd fd = io::create_exclusive(path);
  io::preallocate(fd, path, static_cast<std::uint64_t>(bytes));
  if (direct) {
    if (::fcntl(fd.get(), F_SETFL, O_DIRECT) != 0) std::perror("O_DIRECT");
    bytes = bytes / 4096 * 4096;
  }
  for (std::int64_t at = 0; at < bytes;) {
    const std::int64_t now_bytes = std::min<std::int64_t>(bytes - at, static_cast<std::int64_t>(part.nbytes()));
    io::write_all_at(fd, path, static_cast<std::uint64_t>(at),
                     {static_cast<const std::byte*>(part.const_data_ptr()), static_cast<std::size_t>(now_bytes)});
    at += now_bytes;
  }
  io::fsync_file(fd, path);
}

checkpoint::SaveRequest request(const std::string& root, std::int64_t step) {
  return {.root = root, .progress = {.step = step}, .config = "{}", .model_config = "{}", .keep = 0};
}

void measure_saves(const std::string& folder, int rounds) {
  const std::string root = folder + "/two";
  comm::run_ranks(
      2,
      [&](comm::Communicator& axis) {
        State state(2, axis);
        const double shard = static_cast<double>(state.bytes());
        const bool is_first = axis.rank() == 0;
        std::vector<at::Tensor> copies;
        for (const checkpoint::LocalPiece& piece : state.pieces()) copies.push_back(piece.values.clone());
        checkpoint::BackgroundSaver saver(state.engine, *state.optimizer);
        for (int round = 0; round <= rounds; ++round) {
          const auto tell = [&](const char* what, double seconds, double bytes) {
            if (is_first && round > 0) print(what, seconds, bytes);  // the first round makes files and buffers
          };
          const std::string plain = concat(folder, "/plain-", axis.rank());
          for (const bool direct : {false, true}) {
            const double seconds = together(axis, [&] { write_plain(plain, state.bytes(), direct); });
            tell(direct ? "disk, past the page cache" : "disk", seconds, 2 * shard);
            fs::remove(plain);
          }
          tell("save",
               together(axis, [&] { checkpoint::save_checkpoint(request(root, 1), state.engine, *state.optimizer); }),
               2 * shard);
          tell("memory copy",
               together(axis,
                        [&] {
                          std::size_t i = 0;
                          for (const checkpoint::LocalPiece& piece : state.pieces()) copies[i++].copy_(piece.values);
                        }),
               2 * shard);
          const double begin = now();
          tell("async stall", together(axis, [&] { saver.start(request(root, 2)); }), 2 * shard);
          saver.wait();
          tell("async save", now() - begin, 2 * shard);
          if (is_first) fs::remove_all(root + "/step-2");
          axis.barrier({"", "round"});
        }
      },
      {.timeout_seconds = 600});
}

void measure_load(const std::string& folder, const char* root, int ranks, const char* what, int rounds) {
  const std::string path = concat(folder, "/", root, "/step-1");
  comm::run_ranks(ranks,
                  [&](comm::Communicator& axis) {
                    State state(ranks, axis);
                    for (int round = 0; round < rounds; ++round) {
                      if (axis.rank() == 0) forget(path);
                      const double cold =
                          together(axis, [&] { checkpoint::load_checkpoint(path, state.engine, *state.optimizer); });
                      const double warm =
                          together(axis, [&] { checkpoint::load_checkpoint(path, state.engine, *state.optimizer); });
                      if (axis.rank() != 0) continue;
                      double bytes = 0;
                      for (const auto& entry : fs::directory_iterator(path))
                        bytes += static_cast<double>(entry.file_size());
                      print(concat(what, ", cold").c_str(), cold, bytes);
                      print(concat(what, ", cached").c_str(), warm, bytes);
                    }
                  },
                  {.timeout_seconds = 600});
}

void save_once(const std::string& root, int ranks) {
  comm::run_ranks(ranks,
                  [&](comm::Communicator& axis) {
                    State state(ranks, axis);
                    checkpoint::save_checkpoint(request(root, 1), state.engine, *state.optimizer);
                  },
                  {.timeout_seconds = 600});
}

}  // namespace
}  // namespace intarsia::bench

int main(int argc, char** argv) {
  using namespace intarsia;
  if (argc < 2) {
    std::printf("usage: checkpoint_bench FOLDER [ROUNDS]\n");
    return 2;
  }
  const std::string folder = argv[1];
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  std::filesystem::create_directories(folder);
  bench::measure_saves(folder, rounds);
  bench::measure_load(folder, "two", 2, "load 2 -> 2", rounds);
  bench::measure_load(folder, "two", 1, "load 2 -> 1", 1);
  bench::measure_load(folder, "two", 4, "load 2 -> 4", 1);
  bench::save_once(folder + "/one", 1);
  bench::measure_load(folder, "one", 2, "load 1 -> 2", 1);
  std::filesystem::remove_all(folder + "/one");
  bench::save_once(folder + "/four", 4);
  bench::measure_load(folder, "four", 3, "load 4 -> 3", 1);
  for (const char* name : {"/two", "/four"}) std::filesystem::remove_all(folder + name);
  return 0;
}
