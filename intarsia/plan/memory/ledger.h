// A meter without memory: what is held, by category, while a step is replayed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia::plan {

// What memory is for. The first six are the categories of tensor/memory_meter.h; the meter's "other" is split in four.
enum class Holding {
  kParams,       // compute dtype
  kMasters,      // fp32 copies of the parameters
  kGradients,    // sums over micro-steps and ranks
  kOptimizer,    // moments
  kGathered,     // slots of unsharded units
  kReduce,       // reduce buffers
  kActivations,  // what forward makes
  kLogits,       // the head's output and what the loss makes of it
  kWeightGrads,  // gradients of parameters as autograd hands them over
  kTemporaries,  // what backward makes, and the rest
  kSnapshot,     // the copy from which a checkpoint is written while training goes on
};
inline constexpr std::size_t kNumHoldings = 11;
std::string_view holding_name(Holding holding);

// What was held at one moment. Units: bytes.
struct Moment {
  std::string label;
  bool recomputed = false;  // activations are made a second time here
  std::array<std::int64_t, kNumHoldings> bytes{};
  std::int64_t total = 0;

  std::int64_t operator[](Holding holding) const { return bytes[static_cast<std::size_t>(holding)]; }
};

// Books bytes and remembers the fullest moment of each labelled stretch of time.
class Ledger {
 public:
  // `bytes` more are held; negative: given back.
  void book(Holding holding, std::int64_t bytes);
  // From now on it is `label`: "forward model.layers.3".
  void begin(std::string label, bool recomputed = false);

  // Forgets all moments but what is held now.
  void forget();

  const Moment& now() const { return now_; }
  std::int64_t total() const { return now_.total; }
  std::int64_t operator[](Holding holding) const { return now_[holding]; }
  // The fullest moment so far.
  const Moment& peak() const;
  // The fullest moment of each stretch, in order.
  const std::vector<Moment>& timeline() const { return timeline_; }

 private:
  Moment now_;
  std::vector<Moment> timeline_ = std::vector<Moment>(1);
  std::size_t fullest_ = 0;
};

}  // namespace intarsia::plan
