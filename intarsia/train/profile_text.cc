// A profile as tables and as a trace.
#include <algorithm>
#include <iomanip>
#include <sstream>

#include "intarsia/base/text.h"
#include "intarsia/formats/json.h"
#include "intarsia/train/profile.h"

namespace intarsia::train {
namespace {

constexpr double kMilli = 1e3;

struct Sum {
  std::string name;
  double seconds = 0;
};

// Seconds by name, in the order in which the names first came.
std::vector<Sum> sum_phases(const StepProfile& profile) {
  std::vector<Sum> sums;
  for (const Span& span : profile.spans()) {
    if (span.kind != Span::Kind::kPhase) continue;
    auto at = std::ranges::find(sums, span.name, &Sum::name);
    if (at == sums.end()) at = sums.insert(sums.end(), {span.name, 0});
    at->seconds += span.seconds();
  }
  for (Sum& sum : sums) sum.seconds /= std::max(1, profile.steps());
  return sums;
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string cell(const std::string& text, int width) {
  std::ostringstream out;
  out << std::setw(width) << text;
  return out.str();
}

std::string name_cell(const std::string& text, int width) {
  std::ostringstream out;
  out << std::left << std::setw(width) << text;
  return out.str();
}

struct UnitRow {
  std::string name;
  double seconds[2] = {0, 0};  // forward, backward
  double flops[2] = {0, 0};
  double total() const { return seconds[0] + seconds[1]; }
};

std::vector<UnitRow> unit_rows(const StepProfile& profile, const plan::RunPlan& plan, const plan::StepReplay& replay) {
  std::vector<UnitRow> rows(plan.model.units.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].name = plan.model.units[i].name;
  for (const Span& span : profile.spans())
    if (span.unit >= 0)
      rows[static_cast<std::size_t>(span.unit)].seconds[span.kind == Span::Kind::kBackward ? 1 : 0] +=
          span.seconds() / std::max(1, profile.steps());
  for (const plan::Action& action : replay.actions) {
    if (action.unit < 0) continue;
    const double times = action.micro == 1 ? static_cast<double>(plan.accumulation - 1) : 1;
    const bool backward = action.kind == plan::ActionKind::kBackward;
    for (std::size_t i = action.work_begin; i < action.work_end; ++i)
      if (replay.work[i].kind != plan::Work::Kind::kElementwise)
        rows[static_cast<std::size_t>(action.unit)].flops[backward ? 1 : 0] += times * replay.work[i].flops;
  }
  return rows;
}

std::string rate(double flops, double seconds) { return seconds > 0 ? fixed(flops / seconds / 1e9, 1) : "-"; }

}  // namespace

std::string phases_line(const StepProfile& profile) {
  std::vector<std::string> parts;
  for (const Sum& sum : sum_phases(profile)) parts.push_back(concat(sum.name, " ", fixed(kMilli * sum.seconds, 1)));
  return concat("time, ms   ", join(parts));
}

std::string profile_text(const StepProfile& profile, const plan::RunPlan& plan, const plan::StepReplay& replay,
                         std::size_t units) {
  std::ostringstream out;
  const std::vector<Sum> phases = sum_phases(profile);
  double total = 0;
  for (const Sum& sum : phases) total += sum.seconds;
  const auto share = [&](double seconds) { return cell(fixed(total > 0 ? 100 * seconds / total : 0, 1), 8) + " %"; };
  out << "A step of a rank, mean of " << profile.steps() << "\n" << name_cell("  phase", 28) << "        ms   share\n";
  for (const Sum& sum : phases)
    out << "  " << name_cell(sum.name, 26) << cell(fixed(kMilli * sum.seconds, 2), 10) << share(sum.seconds) << "\n";
  const double recomputed = profile.recompute_seconds() / std::max(1, profile.steps());
  if (recomputed > 0)
    out << "  " << name_cell("  of it recomputed", 26) << cell(fixed(kMilli * recomputed, 2), 10) << share(recomputed)
        << "\n";
  out << "  " << name_cell("step", 26) << cell(fixed(kMilli * total, 2), 10) << "\n";

  std::vector<UnitRow> rows = unit_rows(profile, plan, replay);
  double flops = 0;
  for (const UnitRow& row : rows) flops += row.flops[0] + row.flops[1];
  out << "\nUnits: " << fixed(flops / 1e9, 3)
      << " GFLOP a step and rank (products and attention, recomputation included), " << rate(flops, total)
      << " GFLOP/s over the step\n"
      << name_cell("  unit", 28) << "fwd ms    GFLOP  GFLOP/s    bwd ms    GFLOP  GFLOP/s\n";
  if (units > 0 && units < rows.size()) {
    std::ranges::stable_sort(rows, std::greater<>(), &UnitRow::total);
    rows.resize(units);
  }
  for (const UnitRow& row : rows) {
    out << "  " << name_cell(row.name, 22);
    for (int pass = 0; pass < 2; ++pass)
      out << cell(fixed(kMilli * row.seconds[pass], 2), 10) << cell(fixed(row.flops[pass] / 1e9, 3), 9)
          << cell(rate(row.flops[pass], row.seconds[pass]), 9);
    out << "\n";
  }
  CollectiveTotals collectives;
  for (const Span& span : profile.spans()) collectives.add(span);
  const std::string table = collectives.text();
  if (!table.empty()) out << "\n" << table;
  return out.str();
}

bool CollectiveTotals::counts(const Span& span) const {
  return span.kind == Span::Kind::kCollective &&
         (ops_.empty() || std::ranges::find(ops_, comm::op_name(span.op)) != ops_.end());
}

void CollectiveTotals::add(const Span& span) {
  if (!counts(span)) return;
  auto at = std::ranges::find_if(
      rows_, [&](const Row& row) { return row.op == span.op && row.bytes == span.bytes && row.ranks == span.ranks; });
  if (at == rows_.end()) at = rows_.insert(rows_.end(), {span.op, span.bytes, span.ranks});
  ++at->count;
  at->seconds += span.seconds();
  at->waited += span.waited;
}

std::string CollectiveTotals::text() const {
  if (rows_.empty()) return "";
  std::vector<Row> rows = rows_;
  std::ranges::stable_sort(rows, std::greater<>(), &Row::waited);
  std::ostringstream out;
  out << "Collectives of the rank\n"
      << name_cell("  operation", 20) << "  ranks       bytes   count     ms all  ms waited  alg GB/s  bus GB/s\n";
  for (const Row& row : rows) {
    const double moved = static_cast<double>(row.bytes) * static_cast<double>(row.count);
    const double algorithm = row.seconds > 0 ? moved / row.seconds / 1e9 : 0;
    const double passes = row.op == comm::Op::kAllReduce ? 2 : 1;
    out << "  " << name_cell(comm::op_name(row.op), 18) << cell(std::to_string(row.ranks), 7)
        << cell(std::to_string(row.bytes), 12) << cell(std::to_string(row.count), 8)
        << cell(fixed(kMilli * row.seconds, 2), 11) << cell(fixed(kMilli * row.waited, 2), 11)
        << cell(fixed(algorithm, 2), 10) << cell(fixed(algorithm * passes * (row.ranks - 1) / row.ranks, 2), 10)
        << "\n";
  }
  return out.str();
}

std::string trace_json(const std::vector<const StepProfile*>& ranks) {
  double first = 0;
  bool any = false;
  for (const StepProfile* profile : ranks)
    for (const Span& span : profile->spans()) {
      first = any ? std::min(first, span.begin) : span.begin;
      any = true;
    }
  static constexpr const char* kRows[] = {"phases", "units", "collectives"};
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  const char* comma = "";
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    out += concat(comma, "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": ", rank,
                  ", \"args\": {\"name\": \"rank ", rank, "\"}}");
    comma = ",\n";
    for (int row = 0; row < 3; ++row)
      out += concat(comma, "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": ", rank, ", \"tid\": ", row,
                    ", \"args\": {\"name\": \"", kRows[row], "\"}}");
    for (const Span& span : ranks[rank]->spans()) {
      const bool collective = span.kind == Span::Kind::kCollective;
      const int row = collective ? 2 : span.kind == Span::Kind::kPhase ? 0 : 1;
      const char* category = collective                          ? "collective"
                             : span.kind == Span::Kind::kPhase   ? "phase"
                             : span.kind == Span::Kind::kForward ? "forward"
                                                                 : "backward";
      out += concat(comma, "{\"ph\": \"X\", \"name\": ", formats::json_quote(span.name), ", \"cat\": \"", category,
                    "\", \"pid\": ", rank, ", \"tid\": ", row, ", \"ts\": ", fixed(1e6 * (span.begin - first), 1),
                    ", \"dur\": ", fixed(1e6 * span.seconds(), 1));
      if (collective)
        out += concat(", \"args\": {\"bytes\": ", span.bytes, ", \"waited_us\": ", fixed(1e6 * span.waited, 1), "}");
      out += "}";
    }
  }
  return out + "\n]}\n";
}

}  // namespace intarsia::train
