// The table of digits, and the loop that both programs train with.
#pragma once

#include <intarsia/intarsia.h>
#include <torch/nn/functional/loss.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace digits {

struct Table {
  torch::Tensor pixels;  // [rows, 64] fp32 from 0 to 1
  torch::Tensor labels;  // [rows] int64

  Table rows(const torch::Tensor& which) const {
    return {pixels.index_select(0, which), labels.index_select(0, which)};
  }
};

inline Table read_table(const std::string& path) {
  std::ifstream file(path);
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  for (std::string line; std::getline(file, line);) {
    std::istringstream cells(line);
    std::string cell;
    for (int i = 0; i < 64 && std::getline(cells, cell, ','); ++i) pixels.push_back(std::stof(cell) / 16);
    std::getline(cells, cell);
    labels.push_back(std::stoll(cell));
  }
  if (labels.empty()) intarsia::fail(intarsia::ErrorKind::kIo, path, ": no rows");
  const auto rows = static_cast<std::int64_t>(labels.size());
  return {torch::tensor(pixels).view({rows, 64}), torch::tensor(labels)};
}

// Trains for `steps` steps and prints loss and accuracy on the last 360 rows, which training does not see.
template <typename Engine>
void train(Engine& engine, const Table& table, std::int64_t steps) {
  const std::int64_t held_out = 360, rows = table.labels.size(0) - held_out, micro = engine.micro_batch_size();
  const std::int64_t batch = micro * engine.micro_batches();
  torch::manual_seed(1);  // one order for all ranks
  torch::Tensor order;
  for (std::int64_t step = 0, position = rows; step < steps; ++step, position += batch) {
    if (position + batch > rows) {
      order = torch::randperm(rows);
      position = 0;
    }
    do {  // micro-steps; each rank takes its own part of the batch
      const Table part = table.rows(order.narrow(0, position + micro * engine.micro_batch(), micro));
      const torch::Tensor logits = engine.forward(part.pixels.to(engine.dtype()));
      engine.backward(torch::nn::functional::cross_entropy(logits.to(torch::kFloat), part.labels));
    } while (!engine.step());
  }
  // All ranks enter the same units, so all of them look at all held-out rows.
  const torch::NoGradGuard no_grad;
  const Table test = table.rows(torch::arange(rows, rows + held_out));
  const torch::Tensor logits = engine.forward(test.pixels.to(engine.dtype())).to(torch::kFloat);
  const double loss = torch::nn::functional::cross_entropy(logits, test.labels).template item<double>();
  const double accuracy = logits.argmax(1).eq(test.labels).to(torch::kFloat).mean().template item<double>();
  if (engine.rank() == 0)
    std::cout << "ranks " << engine.ranks() << "  training loss " << engine.last_step().loss << "  loss " << loss
              << "  accuracy " << accuracy << "\n";
}

// What main does, with errors as one line and their exit code. Usage: PROGRAM CONFIG.json DIGITS.csv
template <typename Program>
int run(int argc, char** argv, const Program& program) {
  try {
    if (argc != 3) intarsia::fail(intarsia::ErrorKind::kUsage, "usage: ", argv[0], " CONFIG.json DIGITS.csv");
    program(argv[1], read_table(argv[2]));
    return 0;
  } catch (const intarsia::Error& error) {
    std::cerr << error.what() << "\n";
    return intarsia::exit_code(error.kind());
  }
}

}  // namespace digits
