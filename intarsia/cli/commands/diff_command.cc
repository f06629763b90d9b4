#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "intarsia/base/text.h"
#include "intarsia/cli/commands/checkpoint_commands.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/cli/commands/stop_signal.h"
#include "intarsia/formats/float_cast.h"
#include "intarsia/formats/tensor_file.h"

namespace intarsia::cli {
namespace {

using formats::LogicalCheckpoint;
using formats::LogicalTensor;

constexpr std::int64_t kChunk = 1 << 18;  // elements

// A master and a weight are the same thing to compare; other kinds under their own name.
std::map<std::string, const LogicalTensor*> comparable(const LogicalCheckpoint& checkpoint, bool states) {
  std::map<std::string, const LogicalTensor*> out;
  for (const LogicalTensor* tensor : checkpoint.weights()) out.emplace(tensor->name, tensor);
  for (const LogicalTensor& tensor : checkpoint.tensors())
    if (states && tensor.kind != "master" && tensor.kind != "weight") out.emplace(tensor.stored_name(), &tensor);
  return out;
}

struct Difference {
  std::int64_t count = 0;
  double largest = 0;
  std::int64_t at = 0;  // of the largest
};

Difference compare(const LogicalCheckpoint& a, const LogicalTensor& left, const LogicalCheckpoint& b,
                   const LogicalTensor& right) {
  Difference out;
  std::vector<float> x, y;
  for (std::int64_t begin = 0; begin < left.numel(); begin += kChunk) {
    StopSignal::check();
    const std::int64_t end = std::min(begin + kChunk, left.numel());
    x.resize(static_cast<std::size_t>(end - begin));
    y.resize(x.size());
    a.read(left, begin, end, x.data());
    b.read(right, begin, end, y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
      const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      ++out.count;
      // One that is not finite is larger than any other.
      if (out.count == 1 || !(difference <= out.largest)) {
        out.largest = difference;
        out.at = begin + static_cast<std::int64_t>(i);
      }
    }
  }
  return out;
}

int run(const LogicalCheckpoint& a, const LogicalCheckpoint& b, bool only_weights) {
  // Of states only what both could have: an exported model has none.
  const bool states = !only_weights && a.state().no_optimizer_state.empty() && b.state().no_optimizer_state.empty();
  const auto left = comparable(a, states), right = comparable(b, states);
  std::size_t same = 0, differ = 0;
  for (const auto& [name, tensor] : left) {
    const auto found = right.find(name);
    const LogicalTensor* const other = found != right.end() ? found->second : b.weight(name);
    if (other == nullptr) {
      if (a.aliases().contains(name)) continue;
      std::cout << printable(name) << ": only in " << printable(a.path()) << "\n";
      ++differ;
    } else if (tensor->shape != other->shape) {
      std::cout << printable(name) << ": shape " << formats::shape_text(tensor->shape) << " and "
                << formats::shape_text(other->shape) << "\n";
      ++differ;
    } else if (!formats::is_weight_dtype(tensor->dtype) || !formats::is_weight_dtype(other->dtype)) {
      std::cout << printable(name) << ": not compared, " << short_name(tensor->dtype) << " and "
                << short_name(other->dtype) << "\n";
      ++differ;
    } else if (const Difference found_difference = compare(a, *tensor, b, *other); found_difference.count > 0) {
      std::cout << printable(name) << ": " << found_difference.count << " of " << tensor->numel()
                << " elements differ, the most by " << shortest(found_difference.largest) << " at element "
                << found_difference.at << "\n";
      ++differ;
    } else {
      ++same;
    }
  }
  for (const auto& [name, tensor] : right) {
    if (left.contains(name) || a.weight(name) != nullptr) continue;
    std::cout << printable(name) << ": only in " << printable(b.path()) << "\n";
    ++differ;
  }
  std::cout << same << " tensors are equal, " << differ << " differ"
            << (states ? "" : "; the optimizer's state was not compared") << "\n";
  return differ == 0 ? 0 : 1;
}

}  // namespace

int diff_command(int argc, char** argv, const OpenCheckpoint& open) {
  CLI::App app(
      "Compares two checkpoints or models tensor by tensor, in fp32, whatever their formats and layouts: weights\n"
      "(the fp32 masters where there are any) and, where both have it, the optimizer's state.\n"
      "Exit code 0: equal; 1: something differs.",
      "intarsia diff");
  std::string a, b;
  bool only_weights = false;
  app.add_option("A", a, "one checkpoint or model")->required()->type_name("");
  app.add_option("B", b, "the other")->required()->type_name("");
  app.add_flag("--weights", only_weights, "compare the weights only");
  return run_app(app, argc, argv, "intarsia diff", "stopped",
                 [&] { return run(open(a, false), open(b, false), only_weights); });
}

}  // namespace intarsia::cli
