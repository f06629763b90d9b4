#include "intarsia/comm/backends/region_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/comm/backends/futex.h"

namespace intarsia::comm {
namespace {

using std::chrono::milliseconds;

// How long a sleeping rank goes without looking for aborts, dead ranks and its deadline.
constexpr milliseconds kSlice{50};
// While sends or receives are pending, a sleeping rank must move them on.
constexpr std::chrono::microseconds kTransferSlice{200};

// Whether the process is gone or a zombie that its parent has not reaped.
bool process_ended(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  const std::size_t state = line.rfind(") ");
  return state != std::string::npos && (line.at(state + 2) == 'Z' || line.at(state + 2) == 'X');
}

}  // namespace

RegionCommunicator::RegionCommunicator(std::shared_ptr<SharedRegion> region, int rank)
    : region_(std::move(region)), rank_(rank), size_(region_->options().ranks), sends_(size_), recvs_(size_) {
  INTARSIA_INVARIANT(rank >= 0 && rank < size_, "rank ", rank, " of a region of ", size_);
  RankSlot& slot = region_->slot(rank_);
  slot.pid = ::getpid();
  const auto before = slot.state.exchange(static_cast<std::uint32_t>(RankState::kPresent));
  INTARSIA_INVARIANT(before == static_cast<std::uint32_t>(RankState::kAbsent), "rank ", rank, " joined a region twice");
}

RegionCommunicator::~RegionCommunicator() {
  region_->slot(rank_).state = static_cast<std::uint32_t>(RankState::kLeft);
  futex_wake_all(region_->control().generation);
  for (int peer = 0; peer < size_; ++peer) ring_doorbell(peer);
}

void RegionCommunicator::begin_operation(const OpDescriptor& descriptor) {
  ++sequence_;
  calls_.add(descriptor);
  throw_if_aborted();
}

void RegionCommunicator::meet(const OpDescriptor& descriptor, const void* direct, std::int64_t value, bool compare) {
  ++round_;
  RankSlot::Published& mine = region_->slot(rank_).published[round_ & 1];
  mine.descriptor = descriptor;
  mine.descriptor.sequence = sequence_;
  mine.direct = direct;
  mine.value = value;
  arrive_and_wait(descriptor);
  if (!compare) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (!same_operation(published(peer).descriptor, descriptor)) report_mismatch();
  }
}

bool RegionCommunicator::all_direct() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (published(peer).direct == nullptr) return false;
  }
  return true;
}

bool RegionCommunicator::reached(std::uint32_t round) const {
  // Rounds wrap around; the difference does not.
  return static_cast<std::int32_t>(region_->control().generation.load() - round) >= 0;
}

void RegionCommunicator::arrive_and_wait(const OpDescriptor& descriptor) {
  RegionControl& control = region_->control();
  region_->slot(rank_).round.store(round_);
  if (control.arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(size_)) {
    control.arrived.store(0);
    control.generation.store(round_);
    if (control.sleepers.load() > 0) futex_wake_all(control.generation);
    return;
  }
  const auto start = Clock::now();
  for (int spin = region_->spins(); spin > 0 && !reached(round_); --spin) __builtin_ia32_pause();
  const auto deadline = start + std::chrono::duration<double>(region_->options().timeout_seconds);
  auto next_look = start + kSlice;
  while (!reached(round_)) {
    throw_if_aborted();
    const bool moving = transfers_pending();
    if (moving) progress_transfers();
    control.sleepers.fetch_add(1);
    const std::uint32_t seen = control.generation.load();
    if (!reached(round_)) {
      futex_wait(control.generation, seen,
                 moving ? std::chrono::nanoseconds(kTransferSlice) : std::chrono::nanoseconds(kSlice));
    }
    control.sleepers.fetch_sub(1);
    const auto now = Clock::now();
    if (now < next_look || reached(round_)) continue;
    next_look = now + kSlice;
    const std::vector<int> missing = missing_ranks(round_);
    check_ranks_alive(missing, descriptor);
    if (now >= deadline && !missing.empty()) {
      stop(concat("timed out after ", shortest(region_->options().timeout_seconds), " s in ", describe(descriptor),
                  " #", sequence_, " on rank ", rank_, " of ", size_, ": ", name_ranks(missing), " did not call it"));
    }
  }
  waited_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int> RegionCommunicator::missing_ranks(std::uint32_t round) const {
  std::vector<int> missing;
  for (int peer = 0; peer < size_; ++peer) {
    if (static_cast<std::int32_t>(region_->slot(peer).round.load() - round) < 0) missing.push_back(peer);
  }
  return missing;
}

void RegionCommunicator::check_ranks_alive(const std::vector<int>& missing, const OpDescriptor& descriptor) {
  for (const int peer : missing) {
    const RankSlot& slot = region_->slot(peer);
    const auto state = static_cast<RankState>(slot.state.load());
    if (state == RankState::kAbsent) continue;
    const bool ended = state == RankState::kPresent && region_->options().process_ranks && process_ended(slot.pid);
    if (state != RankState::kLeft && !ended) continue;
    // It may have arrived between the look at its round and the look at its state.
    if (static_cast<std::int32_t>(slot.round.load() - round_) >= 0) continue;
    throw_if_aborted();
    stop(concat("rank ", peer, " (pid ", slot.pid.load(), ")", ended ? " died" : " finished", " while rank ", rank_,
                " of ", size_, " waited for it in ", describe(descriptor), " #", sequence_));
  }
}

// All ranks are here: all see the same descriptors. One more round tells how often each rank has called what differs.
void RegionCommunicator::report_mismatch() {
  std::vector<OpDescriptor> by_rank;
  for (int peer = 0; peer < size_; ++peer) by_rank.push_back(published(peer).descriptor);
  const auto groups = group_by_operation(by_rank);
  const std::size_t listed = std::min<std::size_t>(groups.size(), kStagingBytes / sizeof(std::int64_t));
  auto* mine = reinterpret_cast<std::int64_t*>(next_staging());
  for (std::size_t g = 0; g < listed; ++g) mine[g] = calls_.of(groups[g].first);
  meet(by_rank[rank_], nullptr, 0, false);
  std::vector<std::vector<std::int64_t>> counts(listed, std::vector<std::int64_t>(size_));
  for (std::size_t g = 0; g < listed; ++g) {
    for (int peer = 0; peer < size_; ++peer) counts[g][peer] = reinterpret_cast<const std::int64_t*>(staged(peer))[g];
  }
  stop(describe_mismatch(by_rank, counts));
}

void RegionCommunicator::throw_if_aborted() const {
  const RegionControl& control = region_->control();
  if (control.abort_state.load() == 0) return;
  // The writer needs microseconds; should it die at it, the reason is lost but not the stop.
  for (int tries = 0; tries < 100 && control.abort_state.load() != 2; ++tries) ::usleep(1000);
  throw AbortedByPeer(control.abort_state.load() == 2 ? std::string(control.abort_reason) : "another rank failed");
}

void RegionCommunicator::abort(const std::string& reason) noexcept { set_reason(reason); }

// Returns whether this rank is the first to stop.
bool RegionCommunicator::set_reason(const std::string& reason) noexcept {
  RegionControl& control = region_->control();
  std::uint32_t none = 0;
  const bool first = control.abort_state.compare_exchange_strong(none, 1);
  if (first) {
    const std::size_t length = std::min(reason.size(), sizeof(control.abort_reason) - 1);
    std::memcpy(control.abort_reason, reason.data(), length);
    control.abort_state.store(2);
  }
  futex_wake_all(control.generation);
  for (int peer = 0; peer < size_; ++peer) ring_doorbell(peer);
  return first;
}

// The first rank to stop reports the reason as its own; the others learn it as AbortedByPeer.
void RegionCommunicator::stop(const std::string& reason) {
  if (!set_reason(reason)) throw_if_aborted();
  throw Error(ErrorKind::kComm, reason);
}

}  // namespace intarsia::comm
