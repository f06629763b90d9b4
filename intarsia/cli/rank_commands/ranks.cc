#include "intarsia/cli/rank_commands/ranks.h"

#include <ATen/Parallel.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/comm/backends/listen.h"
#include "intarsia/comm/mesh.h"
#include "intarsia/launch/local_ranks.h"
#include "intarsia/tensor/device.h"
#include "intarsia/tensor/memory_meter.h"

namespace intarsia::cli {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// What the ranks of this host have already said: several ranks that fail for one reason say it once. Lives in memory
// that forked ranks share.
class SaidOnce {
 public:
  SaidOnce() {
    void* page = ::mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) first_ = new (page) Slot(0);
  }
  ~SaidOnce() {
    if (first_ != nullptr) ::munmap(first_, sizeof(Slot));
  }
  SaidOnce(const SaidOnce&) = delete;
  SaidOnce& operator=(const SaidOnce&) = delete;

  // False for a text that equals the first one.
  bool is_new(const std::string& text) {
    const std::size_t mine = std::hash<std::string>{}(text) | 1;  // 0: nothing said yet
    std::size_t first = 0;
    return first_ == nullptr || first_->compare_exchange_strong(first, mine) || first != mine;
  }

 private:
  using Slot = std::atomic<std::size_t>;
  Slot* first_ = nullptr;
};

bool is_about_another_rank(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const comm::AbortedByPeer&) {
    return true;
  } catch (...) {
    return false;
  }
}

// The exit code and the one line of an exception.
std::pair<int, std::string> describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {exit_code(error.kind()), error.what()};
  } catch (const std::bad_alloc&) {
    return {exit_code(ErrorKind::kMemory), "out of memory"};
  } catch (const std::exception& error) {  // c10's errors: the first line says what
    const std::string text = error.what();
    const bool memory = text.find("allocate") != std::string::npos && text.find("memory") != std::string::npos;
    return {exit_code(memory ? ErrorKind::kMemory : ErrorKind::kInternal), text.substr(0, text.find('\n'))};
  }
}

// Runs the body on one rank that has its mesh, and ends the others when it throws. `said`: of the ranks of this
// program; null under a foreign launcher, where each rank speaks for itself.
int run_body(const plan::RunPlan& plan, const comm::Rendezvous& rendezvous, const RankBody& body, SaidOnce* said) {
  tensor::set_memory_rank(rendezvous.rank);
  std::unique_ptr<comm::Mesh> mesh;
  try {
    tensor::use_device(plan.device, rendezvous.local_rank);
    mesh = comm::Mesh::create(plan, rendezvous);
    return body(mesh->data());
  } catch (...) {
    const auto [code, text] = describe(std::current_exception());
    if (mesh != nullptr) mesh->abort(concat("rank ", rendezvous.rank, ": ", text));
    // What another rank's end brought about is told by that rank, or by the watch if it was killed.
    if (said != nullptr && is_about_another_rank(std::current_exception())) return code;
    if (plan.ranks == 1) {
      log_error(text);
    } else if (said == nullptr || said->is_new(text)) {
      log_error(concat("rank ", rendezvous.rank, " (", rendezvous.host, "): ", text));
    }
    return code;
  }
}

int run_threads(const plan::RunPlan& plan, const RankBody& body) {
  const comm::SharedRegions regions = comm::shared_regions_for(plan);
  SaidOnce said;
  std::vector<int> codes(static_cast<std::size_t>(plan.ranks), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < plan.ranks; ++rank)
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      codes[static_cast<std::size_t>(rank)] = run_body(
          plan, {.rank = rank, .world = plan.ranks, .local_rank = rank, .host = host_name(), .regions = regions}, body,
          &said);
    });
  for (std::thread& thread : threads) thread.join();
  for (const int code : codes)
    if (code != 0) return code;
  return 0;
}

int run_processes(const plan::RunPlan& plan, launch::Bind bind, const RankBody& body) {
  const comm::SharedRegions regions = comm::shared_regions_for(plan);
  SaidOnce said;
  comm::Rendezvous base{.world = plan.ranks, .host = host_name(), .regions = regions};
  int listen_port = 0;
  int listen_fd = -1;
  if (plan.backend == plan::CommBackend::kGloo) {
    const comm::Listener listener = comm::listen_on("127.0.0.1", 0);
    listen_fd = listener.fd;
    listen_port = listener.port;
  }
  const auto rank_body = [&](int rank) {
    at::set_num_threads(plan.threads);
    comm::Rendezvous mine = base;
    mine.rank = mine.local_rank = rank;
    mine.master_port = listen_port;
    mine.listen_fd = rank == 0 ? listen_fd : -1;
    return run_body(plan, mine, body, &said);
  };
  if (plan.ranks == 1) return rank_body(0);
  return launch::run_local_ranks({.ranks = plan.ranks, .bind = bind, .ranks_report = true}, rank_body);
}

int join_launcher(const launch::RankEnvironment& environment, const plan::RunPlan& plan, const RankBody& body) {
  at::set_num_threads(plan.threads);
  return run_body(plan,
                  {.rank = environment.rank,
                   .world = environment.world,
                   .local_rank = environment.local_rank.value_or(0),
                   .host = host_name(),
                   .master_address = environment.master_address,
                   .master_port = environment.master_port,
                   .store_served = environment.store_served,
                   .store_prefix = environment.store_prefix},
                  body, nullptr);
}

}  // namespace

RankSource find_ranks(std::optional<int> ranks_flag) {
  RankSource source;
  source.environment = launch::read_environment(launch::process_variables(), std::to_string(::getppid()));
  if (source.environment && source.environment->world == 1) source.environment.reset();
  if (ranks_flag) {
    INTARSIA_CHECK(kUsage, *ranks_flag >= 1 && *ranks_flag <= 1024, "--ranks ", *ranks_flag, "; allowed: 1 to 1024");
    if (source.environment) launch::check_ranks_flag(*ranks_flag, *source.environment);
    source.ranks = *ranks_flag;
  }
  if (source.environment) source.ranks = source.environment->world;
  return source;
}

plan::CommBackend effective_backend(const RankSource& source, plan::CommBackend asked) {
  return source.environment ? plan::CommBackend::kGloo : asked;
}

int run_ranks(const RankSource& source, const plan::RunPlan& plan, launch::Bind bind, const RankBody& body) {
  tensor::install_memory_meter();
  if (source.environment) return join_launcher(*source.environment, plan, body);
  if (plan.backend == plan::CommBackend::kThreads) return run_threads(plan, body);
  return run_processes(plan, bind, body);
}

}  // namespace intarsia::cli
