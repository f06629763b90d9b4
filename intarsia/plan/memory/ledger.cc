#include "intarsia/plan/memory/ledger.h"

namespace intarsia::plan {

std::string_view holding_name(Holding holding) {
  static constexpr std::array<std::string_view, kNumHoldings> kNames{
      "parameters",  "masters", "gradients",        "optimizer",   "gathered",       "reduce",
      "activations", "logits",  "weight gradients", "temporaries", "checkpoint copy"};
  return kNames[static_cast<std::size_t>(holding)];
}

void Ledger::book(Holding holding, std::int64_t bytes) {
  now_.bytes[static_cast<std::size_t>(holding)] += bytes;
  now_.total += bytes;
  Moment& stretch = timeline_.back();
  if (bytes <= 0 || now_.total <= stretch.total) return;
  stretch.bytes = now_.bytes;
  stretch.total = now_.total;
  if (stretch.total > timeline_[fullest_].total) fullest_ = timeline_.size() - 1;
}

void Ledger::begin(std::string label, bool recomputed) {
  Moment stretch = now_;
  stretch.label = std::move(label);
  stretch.recomputed = recomputed;
  timeline_.push_back(std::move(stretch));
}

void Ledger::forget() {
  timeline_.assign(1, now_);
  fullest_ = 0;
}

const Moment& Ledger::peak() const { return timeline_[fullest_]; }

}  // namespace intarsia::plan
