// How jobs of threads end early: one rank throws, or does not come. (Collectives that go well:
// communicator_test.cpp.)
#include "comm/local_transport.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/comm_checks.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// Usually milliseconds; without an abort it would be the timeout, ten minutes.
constexpr double kSoon = 5;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

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
    CHECK(seconds_since(begin) < kSoon);
  }
}

TEST_CASE("an abort while memory is being read leaves nothing dangling") {
  for (int round = 0; round < 20; ++round) {
    const std::string message = error_of([&] {
      run_local_ranks(3, [&](Communicator& world) {
        CommRank rank(world.rank(), 300);
        // Given back in the order of the stream that reads and writes it, also when unwinding.
        constexpr int64_t kNumel = 3 << 18;
        const Tensor value(std::make_shared<Storage>(*rank.backend, kNumel * sizeof(float),
                                                     MemoryCategory::kActivation, rank.first.get()),
                           0, Shape{kNumel}, DType::kF32);
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
    run_local_ranks(4,
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
  CHECK(contains(message, "waited 0.1 s for ranks 1, 3 (group of 4)"));
  CHECK(seconds_since(begin) < kSoon);
}

TEST_CASE("errors call ranks by their place in the job, also those of a smaller group") {
  const std::string message = error_of([] {
    run_local_ranks(4,
                    [](Communicator& world) {
                      CommRank rank(world.rank());
                      const Tensor value = finished_zeros(rank, 64);
                      const auto odd_or_even = world.split(
                          [](int r) { return SplitPlace{.color = r % 2, .key = r}; }, "half");
                      if (world.rank() == 3) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(500));
                      }
                      odd_or_even->all_reduce(*rank.first, value, ReduceOp::kSum)->wait();
                    },
                    {.timeout = std::chrono::milliseconds(100)});
  });
  CAPTURE(message);
  CHECK(contains(message, "half: rank 1 waited 0.1 s for rank 3 (group of 2)"));
  CHECK(message.starts_with("rank 1: "));  // not who heard of it first
}

TEST_CASE("a later group of an aborted job is aborted too, and one rank alone works") {
  const std::string message = error_of([] {
    run_local_ranks(2, [](Communicator& world) {
      if (world.rank() == 0) {
        world.abort("enough");
        fail("enough");
      }
      for (;;) world.duplicate("again");
    });
  });
  CHECK(contains(message, "enough"));
  int ran = 0;
  run_local_ranks(1, [&](Communicator& world) { ran += world.size(); });
  CHECK(ran == 1);
  CHECK(contains(error_of([] { run_local_ranks(0, [](Communicator&) {}); }), "at least 1, got 0"));
}
