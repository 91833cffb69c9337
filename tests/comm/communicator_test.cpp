// The communicator contract with ranks as threads; the same checks over MPI: tests/mpi. Then what
// only threads can show: abort, timeout, and the checks before anything is enqueued.
#include "comm/communicator.h"

#include <chrono>
#include <thread>

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

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
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

// ---------------------------------------------------------------------------- Giving up

TEST_CASE("one rank throws: all end at once and the message names it") {
  for (const bool host_side : {false, true}) {
    CAPTURE(host_side);
    const auto begin = std::chrono::steady_clock::now();
    std::atomic<int> told = 0;
    const std::string message = error_of([&] {
      run_local_ranks(4, [&](Communicator& world) {
        CommRank rank(world.rank());
        const Tensor value = finished_zeros(rank, 1 << 16);
        const auto second = world.duplicate("second");
        for (int i = 0; i < 20; ++i) second->all_reduce(*rank.second, value, ReduceOp::kSum);
        rank.backend->synchronize(*rank.second);
        if (world.rank() == 2) fail("disk full");
        const std::string seen = error_of([&] {
          if (host_side) {
            second->exchange("hello");
          } else {
            second->all_gather(*rank.first, value)->wait();
          }
        });
        if (contains(seen, "rank 2 gave up: disk full")) ++told;
        throw Error(seen);  // comes after the first error and is not reported
      });
    });
    CHECK(message == "rank 2: disk full");
    CHECK(told == 3);
    CHECK(seconds_since(begin) < 1);
  }
}

TEST_CASE("an abort while memory is being read leaves nothing dangling") {
  for (int round = 0; round < 20; ++round) {
    const std::string message = error_of([&] {
      run_local_ranks(3, [&](Communicator& world) {
        CommRank rank(world.rank(), 300);
        const Tensor value = finished_zeros(rank, 3 << 18);
        EventPtr last;
        for (int i = 0; i < 4; ++i) last = world.all_gather(*rank.first, value);
        if (world.rank() == round % 3) {
          std::this_thread::sleep_for(std::chrono::microseconds(150 * round));
          fail("stop");
        }
        last->wait();
      });
    });
    CHECK(message == "rank " + std::to_string(round % 3) + ": stop");
  }
}

TEST_CASE("an exception that is no Error still ends all ranks") {
  const std::string message = error_of([] {
    run_local_ranks(2, [](Communicator& world) {
      if (world.rank() == 1) throw 7;
      world.barrier();
    });
  });
  CHECK(message == "rank 1: ended by an exception of unknown type");
}

TEST_CASE("a wait that takes too long names who is missing") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = error_of([] {
    run_local_ranks(
        4,
        [](Communicator& world) {
          CommRank rank(world.rank());
          const Tensor value = finished_zeros(rank, 64);
          world.all_gather(*rank.first, value)->wait();
          if (world.rank() == 1 || world.rank() == 3) {
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
          }
          world.all_reduce(*rank.first, value, ReduceOp::kSum)->wait();
        },
        {.timeout = std::chrono::milliseconds(100)});
  });
  CAPTURE(message);
  CHECK(contains(message, "all_reduce: [all_reduce] world: rank "));
  CHECK(contains(message, "waited 0.1 s for ranks 1, 3 of 4"));
  CHECK(seconds_since(begin) < 2);
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
    CHECK(contains(error_of([&] { world.split(-1, 0, "x"); }), "color"));
    CHECK(world.count(Collective::kAllGather).calls == 0);
  });
}
