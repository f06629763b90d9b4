#include "intarsia/optim/matrix_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace intarsia::optim {
namespace {

using plan::Range;
using Works = std::vector<std::unique_ptr<comm::Work>>;

void wait_all(Works& works) {
  for (const auto& work : works) work->wait();
  works.clear();
}

}  // namespace

MatrixExchange::MatrixExchange(const plan::RunPlan& plan, comm::Communicator& axis, bool sharded)
    : plan_(plan), axis_(axis), sharded_(sharded) {
  const std::vector<int> owners = plan::matrix_owners(plan);
  std::vector<std::vector<Matrix>> by_owner(static_cast<std::size_t>(sharded ? axis.size() : 1));
  for (std::size_t flat = 0; flat < plan.flats.size(); ++flat)
    for (std::size_t slot = 0; slot < plan.flats[flat].slots.size(); ++slot) {
      const int param = plan.flats[flat].slots[slot].param;
      const int owner = owners[static_cast<std::size_t>(param)];
      if (owner < 0) continue;
      by_owner[sharded ? static_cast<std::size_t>(owner) : 0].push_back(
          {flat, slot, param, sharded ? owner : axis.rank()});
    }
  for (std::vector<Matrix>& matrices : by_owner) {
    std::ranges::stable_sort(matrices, std::greater<>(), [&](const Matrix& matrix) {
      return plan_.model.params[static_cast<std::size_t>(matrix.param)].numel();
    });
    rounds_.resize(std::max(rounds_.size(), matrices.size()));
    for (std::size_t i = 0; i < matrices.size(); ++i) rounds_[i].push_back(matrices[i]);
  }
}

void MatrixExchange::run(const Rule& rule) {
  for (const std::vector<Matrix>& round : rounds_) run_round(round, rule);
}

void MatrixExchange::run_round(const std::vector<Matrix>& round, const Rule& rule) {
  const int me = axis_.rank();
  const auto range_of = [&](const Matrix& matrix, int rank) {
    const plan::FlatLayout& layout = plan_.flats[matrix.flat];
    return plan::param_range(layout.slots[matrix.slot],
                             plan::resting(layout, plan_.placement.optimizer, plan_.grid(), rank));
  };
  std::vector<at::Tensor> parts(round.size());
  at::Tensor whole;
  Works works;
  // Moves each rank's part of the owner's matrix; every pair of ranks meets its matrices in the order of the round.
  const auto exchange = [&](bool to_owner) {
    for (std::size_t i = 0; i < round.size(); ++i) {
      const Matrix& matrix = round[i];
      const comm::Tag tag{plan_.flats[matrix.flat].name, to_owner ? "gather matrix" : "return matrix"};
      if (matrix.owner != me) {
        if (parts[i].defined())
          works.push_back(to_owner ? axis_.send(parts[i], matrix.owner, tag) : axis_.recv(parts[i], matrix.owner, tag));
        continue;
      }
      for (int rank = 0; rank < (sharded_ ? axis_.size() : 0); ++rank) {
        const Range range = range_of(matrix, rank);
        if (rank == me || range.size() == 0) continue;
        const at::Tensor there = whole.narrow(0, range.begin, range.size());
        works.push_back(to_owner ? axis_.recv(there, rank, tag) : axis_.send(there, rank, tag));
      }
    }
    wait_all(works);
  };

  const Matrix* mine = nullptr;
  for (std::size_t i = 0; i < round.size(); ++i) {
    const Range range = range_of(round[i], me);
    if (round[i].owner == me) {
      mine = &round[i];
      whole = at::empty({plan_.flats[mine->flat].slots[mine->slot].numel}, at::kFloat);
      if (range.size() > 0) parts[i] = whole.narrow(0, range.begin, range.size());
    } else if (range.size() > 0) {
      parts[i] = at::empty({range.size()}, at::kFloat);
    }
    if (parts[i].defined()) rule.prepare(round[i], range, parts[i]);
  }
  exchange(true);
  if (mine != nullptr)
    rule.transform(*mine, whole.view(plan_.model.params[static_cast<std::size_t>(mine->param)].shape));
  exchange(false);
  for (std::size_t i = 0; i < round.size(); ++i)
    if (parts[i].defined()) rule.apply(round[i], range_of(round[i], me), parts[i]);
}

}  // namespace intarsia::optim
