// What every backend must do, on every number of ranks: right values, and sums bit-equal to one balanced tree.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <tuple>

#include "intarsia/comm/testing_backends.h"

namespace intarsia::comm {
namespace {

constexpr double kTimeout = 30;

// Elements [begin, begin + count) of what rank `rank` gives; their sum depends on the order of adding.
at::Tensor values(int rank, std::int64_t count, c10::ScalarType dtype, std::int64_t begin = 0) {
  const at::Tensor index = at::arange(begin, begin + count, at::kLong) * 7919 + rank * 104729;
  const at::Tensor mantissa = index.remainder(2039) - 1019;
  if (dtype == at::kLong) return mantissa * 1000003;
  const at::Tensor scale = at::exp2(index.remainder(23).to(at::kFloat) - 11);
  return (mantissa.to(at::kFloat) * scale).to(dtype);
}

// The balanced tree over ranks [first, first + ranks): split at the largest power of two below.
at::Tensor sum_in_tree(int first, int ranks, std::int64_t count, c10::ScalarType dtype, std::int64_t begin) {
  if (ranks == 1) return values(first, count, dtype, begin);
  const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks - 1)));
  return sum_in_tree(first, left, count, dtype, begin) + sum_in_tree(first + left, ranks - left, count, dtype, begin);
}

at::Tensor sum_in_tree(int ranks, std::int64_t count, c10::ScalarType dtype, std::int64_t begin = 0) {
  return sum_in_tree(0, ranks, count, dtype, begin);
}

void expect_same_bits(const at::Tensor& found, const at::Tensor& expected, const char* what) {
  ASSERT_EQ(found.nbytes(), expected.nbytes()) << what;
  EXPECT_EQ(std::memcmp(found.data_ptr(), expected.contiguous().data_ptr(), found.nbytes()), 0)
      << what << " of " << found.numel() << " " << found.dtype().name();
}

const Tag kTag{"layers.0", "test"};

void check_collectives(Communicator& comm, std::int64_t n, c10::ScalarType dtype) {
  const int size = comm.size();
  const int rank = comm.rank();
  const auto options = at::TensorOptions().dtype(dtype);

  at::Tensor gathered = at::zeros({size * n}, options);
  comm.all_gather(gathered, values(rank, n, dtype), kTag)->wait();
  for (int peer = 0; peer < size; ++peer) {
    expect_same_bits(gathered.narrow(0, peer * n, n), values(peer, n, dtype), "all_gather");
  }
  at::Tensor in_place = at::zeros({size * n}, options);
  const at::Tensor own = in_place.narrow(0, rank * n, n);
  own.copy_(values(rank, n, dtype));
  comm.all_gather(in_place, own, kTag)->wait();
  expect_same_bits(in_place, gathered, "all_gather from the own piece");

  const at::Tensor whole = values(rank, size * n, dtype);
  const at::Tensor piece_of_sum = sum_in_tree(size, n, dtype, rank * n);
  at::Tensor input = whole.clone();
  at::Tensor reduced = at::zeros({n}, options);
  comm.reduce_scatter(reduced, input, kTag)->wait();
  expect_same_bits(reduced, piece_of_sum, "reduce_scatter");
  expect_same_bits(input, whole, "input of reduce_scatter");
  comm.reduce_scatter(input.narrow(0, rank * n, n), input, kTag)->wait();
  at::Tensor expected = whole.clone();
  expected.narrow(0, rank * n, n).copy_(piece_of_sum);
  expect_same_bits(input, expected, "reduce_scatter into the own piece");

  at::Tensor all = values(rank, n, dtype);
  comm.all_reduce(all, ReduceOp::kSum, kTag)->wait();
  expect_same_bits(all, sum_in_tree(size, n, dtype), "all_reduce sum");
  at::Tensor largest = values(rank, n, dtype);
  comm.all_reduce(largest, ReduceOp::kMax, kTag)->wait();
  at::Tensor expected_largest = values(0, n, dtype);
  for (int peer = 1; peer < size; ++peer) expected_largest = at::maximum(expected_largest, values(peer, n, dtype));
  expect_same_bits(largest, expected_largest, "all_reduce max");

  for (const int root : {0, size - 1}) {
    at::Tensor cast = values(rank, n, dtype);
    comm.broadcast(cast, root, kTag)->wait();
    expect_same_bits(cast, values(root, n, dtype), "broadcast");
  }

  at::Tensor exchanged = at::zeros({size * n}, options);
  comm.all_to_all(exchanged, whole, kTag)->wait();
  for (int peer = 0; peer < size; ++peer) {
    expect_same_bits(exchanged.narrow(0, peer * n, n), values(peer, n, dtype, rank * n), "all_to_all");
  }
  comm.barrier(kTag);
}

// A ring in which everybody first sends: it must not deadlock, whatever the size.
void check_ring(Communicator& comm, std::int64_t n, c10::ScalarType dtype) {
  if (comm.size() == 1) return;
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  const at::Tensor out = values(comm.rank(), n, dtype);
  at::Tensor in = at::zeros_like(out);
  at::Tensor second = at::zeros_like(out);
  const auto sending = comm.send(out, next, {"layers.1", "forward"});
  const auto sending_again = comm.send(out, next, {"layers.2", "forward"});
  const auto receiving = comm.recv(in, previous, {"layers.1", "forward"});
  const auto receiving_again = comm.recv(second, previous, {"layers.2", "forward"});
  sending->wait();
  receiving_again->wait();
  receiving->wait();
  sending_again->wait();
  expect_same_bits(in, values(previous, n, dtype), "recv");
  expect_same_bits(second, in, "second recv");
}

void check_shared_memory(Communicator& comm) {
  const std::int64_t n = 300'001;
  const std::unique_ptr<SharedMemory> memory = comm.allocate_shared(comm.size() * n * 4);
  if (!memory) return;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 64, 0U);
  const at::Tensor all = at::from_blob(memory->data(), {comm.size() * n}, at::kFloat);
  EXPECT_EQ(all.abs().max().item<float>(), 0.0F);
  comm.barrier(kTag);
  const at::Tensor own = all.narrow(0, comm.rank() * n, n);
  own.copy_(values(comm.rank(), n, at::kFloat));
  comm.barrier(kTag);
  for (int peer = 0; peer < comm.size(); ++peer) {
    expect_same_bits(all.narrow(0, peer * n, n), values(peer, n, at::kFloat), "shared memory");
  }
  // Collectives on shared memory read it where it lies.
  at::Tensor gathered = at::zeros({comm.size() * n}, at::kFloat);
  comm.all_gather(gathered, own, kTag)->wait();
  expect_same_bits(gathered, all, "all_gather of shared memory");
  comm.barrier(kTag);
  comm.all_reduce(own, ReduceOp::kSum, kTag)->wait();
  expect_same_bits(own, sum_in_tree(comm.size(), n, at::kFloat), "all_reduce of shared memory");
  comm.barrier(kTag);
}

class Conformance : public testing::TestWithParam<std::tuple<TestBackend, int>> {};

TEST_P(Conformance, MovesAndAddsRight) {
  const auto [backend, ranks] = GetParam();
  const auto outcomes = run_backend(backend, ranks, kTimeout, [](Communicator& comm) {
    const std::int64_t large = 600'001 / comm.size();  // 2.4 MB in all
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
      for (const std::int64_t n : {0, 1, 1037}) {
        check_collectives(comm, n, dtype);
        check_ring(comm, n, dtype);
      }
    }
    // Several rounds of staging, and what stands between small and large.
    check_collectives(comm, 24'001, at::kBFloat16);
    check_collectives(comm, large, at::kFloat);
    check_ring(comm, large, at::kBFloat16);
    check_shared_memory(comm);
    // Bytes of any dtype travel.
    at::Tensor flags = at::full({3}, comm.rank() == 0, at::kBool);
    comm.broadcast(flags, 0, kTag)->wait();
    EXPECT_TRUE(flags.all().item<bool>());
    EXPECT_GE(comm.waited_seconds(), 0.0);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_FALSE(outcomes[rank].threw) << "rank " << rank << ": " << outcomes[rank].message;
    EXPECT_FALSE(outcomes[rank].failed || outcomes[rank].killed) << "rank " << rank;
  }
}

// Many small operations with more ranks than cores: sleeping and waking must not cost milliseconds.
TEST_P(Conformance, SmallOperationsAreCheap) {
  const auto [backend, ranks] = GetParam();
  constexpr int kOperations = 300;
  const auto outcomes = run_backend(backend, ranks, kTimeout, [](Communicator& comm) {
    at::Tensor one = at::ones({1});
    for (int i = 0; i < kOperations; ++i) {
      one.fill_(1);
      comm.all_reduce(one, ReduceOp::kSum, kTag)->wait();
      EXPECT_EQ(one.item<float>(), static_cast<float>(comm.size()));
    }
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.threw || outcome.failed) << outcome.message;
    // Far above what it takes, far below a wait of some milliseconds each.
    EXPECT_LT(outcome.seconds, 20.0);
  }
  RecordProperty("microseconds_each", static_cast<int>(outcomes[0].seconds / kOperations * 1e6));
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance,
                         testing::Combine(testing::Values(TestBackend::kThreads, TestBackend::kThreadsCopy,
                                                          TestBackend::kShm, TestBackend::kShmCopy, TestBackend::kGloo),
                                          testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& param) {
                           return std::string(name_of(std::get<0>(param.param))) + "_" +
                                  std::to_string(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace intarsia::comm
