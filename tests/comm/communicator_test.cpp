// The communicator contract with ranks as threads (the same checks over MPI: tests/mpi), and the
// checks of arguments before anything is enqueued.
#include "comm/communicator.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/comm_checks.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr int kWorldSizes[] = {1, 2, 3, 4, 8};

void on_all_world_sizes(const std::function<void(Communicator&)>& check) {
  for (const int ranks : kWorldSizes) run_local_ranks(ranks, check);
}

}  // namespace

TEST_CASE("every collective, dtype and size, against scalar loops") {
  on_all_world_sizes([](Communicator& world) { check_dtypes_and_sizes(world, Memory::kPlain); });
}

TEST_CASE("memory from the communicator") {
  on_all_world_sizes([](Communicator& world) {
    CommRank rank(world.rank());
    check_collectives(world, rank, DType::kF32, 33, Memory::kFromCommunicator);
    check_collectives(world, rank, DType::kBF16, 4099, Memory::kFromCommunicator);
  });
}

TEST_CASE("sums have the same bits on every rank and in every run") {
  on_all_world_sizes([](Communicator& world) { check_same_bits(world, Memory::kPlain); });
}

TEST_CASE("two communicators on two streams at once, with delays") {
  on_all_world_sizes([](Communicator& world) { check_two_streams(world, Memory::kPlain); });
}

TEST_CASE("one communicator on two streams keeps the order of issue") {
  on_all_world_sizes(check_one_communicator_on_two_streams);
}

TEST_CASE("exchange and split") { on_all_world_sizes(check_exchange_and_split); }

TEST_CASE("counts and ledger") { on_all_world_sizes(check_counts_and_ledger); }

TEST_CASE("reduction of known gradients as PyTorch FSDP2 does it") {
  on_all_world_sizes(
      [](Communicator& world) { check_reference_reduction(world, Memory::kFromCommunicator); });
}

TEST_CASE("ranks that call different collectives are told so") {
  for (const int ranks : {2, 3, 8}) run_local_ranks(ranks, check_mismatch);
}

TEST_CASE("synchronous mode: collectives run at the call") {
  run_local_ranks(3, [](Communicator& world) {
    cpu::CpuOptions options;
    options.synchronous = true;
    cpu::CpuBackend backend(options);
    const Tensor value = Tensor::from_host<float>(backend, Shape{2}, {1, 2});
    world.all_reduce(backend.compute_stream(), value, ReduceOp::kSum);
    CHECK(value.to_host<float>() == std::vector<float>{3, 6});
  });
}

// ---------------------------------------------------------------------------- Checks at the call

TEST_CASE("wrong arguments are refused before anything is enqueued") {
  run_local_ranks(2, [](Communicator& world) {
    CommRank rank(world.rank());
    CommRank other(world.rank());
    Backend& backend = *rank.backend;
    const Tensor five = Tensor::zeros(backend, Shape{5}, DType::kF32);
    const Tensor six = Tensor::zeros(backend, Shape{6}, DType::kF32);
    const Tensor two = Tensor::zeros(backend, Shape{2}, DType::kF32);
    const Tensor half = Tensor::zeros(backend, Shape{3}, DType::kBF16);
    const Tensor integers = Tensor::zeros(backend, Shape{6}, DType::kI32);
    Stream& stream = *rank.first;
    CHECK(error_of([&] { world.all_gather(stream, five); }) ==
          "[all_gather] world: elements: expected a multiple of 2 (one slot per rank), got 5");
    CHECK(error_of([&] { world.reduce_scatter(stream, six, two, ReduceOp::kSum); }) ==
          "[reduce_scatter] world: output: expected 3 elements (one slot), got 2");
    CHECK(error_of([&] { world.reduce_scatter(stream, six, half, ReduceOp::kSum); }) ==
          "[reduce_scatter] world: output: expected f32 as the input, got bf16");
    const Tensor wrong_slot = six.slice((1 - world.rank()) * 3, Shape{3});
    CHECK(contains(error_of([&] { world.reduce_scatter(stream, six, wrong_slot, ReduceOp::kSum); }),
                   "this rank's slot at byte " + std::to_string(12 * world.rank())));
    CHECK(error_of([&] { world.all_reduce(stream, integers, ReduceOp::kAverage); }) ==
          "[all_reduce] world: average: expected a floating dtype, got i32");
    CHECK(error_of([&] { world.broadcast(stream, six, 2); }) ==
          "[broadcast] world: root: expected a rank below 2, got 2");
    CHECK(contains(error_of([&] { world.all_reduce(*other.first, six, ReduceOp::kSum); }),
                   "[all_reduce] world: stream gather: expected a stream of the tensor's backend"));
    CHECK(contains(error_of([&] { world.all_gather(stream, Tensor()); }), "undefined"));
    CHECK(contains(error_of([&] { world.split([](int) { return SplitPlace{.color = -1}; }, "x"); }),
                   "color"));
    CHECK(world.count(Collective::kAllGather).calls == 0);
  });
}
