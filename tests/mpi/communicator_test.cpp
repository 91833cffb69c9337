// The communicator contract with ranks as processes: through shared memory (buffers of the
// communicator, and plain ones through staging) and through MPI's own calls.
#include <chrono>
#include <thread>

#include <doctest/doctest.h>
#include <mpi.h>

#include "comm/mpi_transport.h"
#include "tests/support/comm_checks.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// Each way that collectives can take; each with its own job.
struct Way {
  const char* name;
  HostMemoryOptions options;
  Memory memory;
};
const Way kWays[] = {
    {"shared memory, direct", {}, Memory::kFromCommunicator},
    {"shared memory, staged", {.staging_bytes = 4096}, Memory::kPlain},
    {"MPI", {.shared_memory = false, .staging_bytes = 4096}, Memory::kPlain},
};

void on_all_ways(const std::function<void(Communicator&, Memory)>& check) {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    MpiRuntime runtime(way.options);
    check(runtime.world(), way.memory);
    CHECK(runtime.world().notice().empty());
  }
}

// Usually milliseconds; without an abort it would be the timeout, ten minutes.
constexpr double kSoon = 5;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("every collective, dtype and size, against scalar loops") {
  on_all_ways([](Communicator& world, Memory memory) {
    CommRank rank(world.rank());
    for (const DType dtype :
         {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kI64}) {
      for (const int64_t slot : {1, 7, 1001}) {
        check_collectives(world, rank, dtype, slot, memory);
      }
    }
    check_collectives(world, rank, DType::kF32, 0, memory);
    check_collectives(world, rank, DType::kBF16, 20011, memory);
  });
}

TEST_CASE("ranks may give buffers of different kinds") {
  MpiRuntime runtime;
  Communicator& world = runtime.world();
  CommRank rank(world.rank());
  const int64_t numel = 50 * world.size();
  const CommTensor registered =
      comm_tensor(world, *rank.backend, numel, DType::kF32, Memory::kFromCommunicator);
  const CommTensor other =
      comm_tensor(world, *rank.backend, 2 * numel, DType::kF32, Memory::kFromCommunicator);
  const CommTensor plain = comm_tensor(world, *rank.backend, numel, DType::kF32, Memory::kPlain);
  // The same window at another place on each rank, different windows, and no window at all.
  const Tensor moved = other.tensor.slice(world.rank() * 13, Shape{numel});
  for (const Tensor& odd : {moved, registered.tensor, plain.tensor}) {
    const Tensor mine = world.rank() % 2 == 1 ? odd : other.tensor.slice(5, Shape{numel});
    const std::vector<float> ones(static_cast<size_t>(numel), 1.f);
    mine.write(ones.data());
    rank.backend->wait(*rank.first, rank.backend->record(rank.backend->compute_stream()));
    world.all_reduce(*rank.first, mine, ReduceOp::kSum)->wait();
    const std::vector<float> sums(static_cast<size_t>(numel), static_cast<float>(world.size()));
    CHECK((mine.to_host<float>() == sums));
  }
}

TEST_CASE("sums have the same bits on every rank, run and way") { on_all_ways(check_same_bits); }

TEST_CASE("two communicators on two streams at once, with delays") {
  on_all_ways(check_two_streams);
}

TEST_CASE("one communicator on two streams keeps the order of issue") {
  on_all_ways([](Communicator& world, Memory) { check_one_communicator_on_two_streams(world); });
}

TEST_CASE("exchange and split") {
  on_all_ways([](Communicator& world, Memory) { check_exchange_and_split(world); });
}

TEST_CASE("counts and ledger") {
  on_all_ways([](Communicator& world, Memory) { check_counts_and_ledger(world); });
}

TEST_CASE("reduction of known gradients as PyTorch FSDP2 does it") {
  on_all_ways(check_reference_reduction);
}

TEST_CASE("ranks that call different collectives are told so") {
  for (const bool shared : {true, false}) {
    MpiRuntime runtime({.shared_memory = shared, .timeout = std::chrono::seconds(1)});
    check_mismatch(runtime.world());
  }
}

TEST_CASE("without shared memory the work is done another way, and a notice says so") {
  {
    MpiRuntime runtime({.limit_bytes = 0});
    CommRank rank(runtime.world().rank());
    check_collectives(runtime.world(), rank, DType::kF32, 99, Memory::kFromCommunicator);
    if (runtime.world().size() > 1) {
      CHECK(contains(runtime.world().notice(),
                     "collectives go through MPI, which is slower: "
                     "no shared memory: rank 0: "));
    }
  }
  MpiRuntime runtime({.limit_bytes = 16384, .staging_bytes = 4096});
  Communicator& world = runtime.world();
  if (world.size() == 1) return;
  CHECK(world.notice().empty());
  CommRank rank(world.rank());
  const CommTensor small =
      comm_tensor(world, *rank.backend, 256, DType::kF32, Memory::kFromCommunicator);
  CHECK(world.notice().empty());
  const CommTensor large =
      comm_tensor(world, *rank.backend, 4096, DType::kF32, Memory::kFromCommunicator);
  CHECK(contains(world.notice(), "collectives copy through staging, which is slower: "));
  CHECK(contains(world.notice(), "would pass the limit of 16384"));
  check_collectives(world, rank, DType::kF32, 5003, Memory::kFromCommunicator);
}

TEST_CASE("one rank gives up: pending collectives and exchanges of the others throw") {
  for (const bool host_side : {false, true}) {
    CAPTURE(host_side);
    MpiRuntime runtime;
    Communicator& world = runtime.world();
    if (world.size() == 1) return;
    const auto second = world.duplicate("second");
    CommRank rank(world.rank());
    const Tensor value = finished_zeros(rank, 1 << 10);
    second->all_reduce(*rank.first, value, ReduceOp::kSum)->wait();
    const auto begin = std::chrono::steady_clock::now();
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      world.abort("disk full");
    } else {
      const std::string message = error_of([&] {
        if (host_side) {
          second->exchange("hello");
        } else {
          second->all_reduce(*rank.first, value, ReduceOp::kSum)->wait();
        }
      });
      CAPTURE(message);
      CHECK(contains(message, "second: rank 1 gave up: disk full"));
    }
    CHECK(seconds_since(begin) < kSoon);
  }
}

TEST_CASE("ranks give up at the same moment, each in another group: one of them reports") {
  MpiRuntime runtime({.timeout = std::chrono::milliseconds(200)});
  Communicator& world = runtime.world();
  if (world.size() == 1) return;
  const auto first = world.duplicate("first"), second = world.duplicate("second");
  CommRank rank(world.rank());
  const Tensor value = finished_zeros(rank, 64);
  Communicator& alone = world.rank() % 2 == 0 ? *first : *second;
  const std::string message =
      error_of([&] { alone.all_reduce(*rank.first, value, ReduceOp::kSum)->wait(); });
  CHECK(contains(message, "waited 0.2 s"));
  const int reports = world.abort(message) ? 1 : 0;
  int in_all = 0;
  MPI_Allreduce(&reports, &in_all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(in_all == 1);
}

TEST_CASE("a wait that takes too long names who is missing") {
  for (const bool shared : {true, false}) {
    CAPTURE(shared);
    MpiRuntime runtime({.shared_memory = shared, .timeout = std::chrono::milliseconds(200)});
    Communicator& world = runtime.world();
    if (world.size() == 1) return;
    CommRank rank(world.rank());
    const Tensor value = finished_zeros(rank, 64);
    world.all_reduce(*rank.first, value, ReduceOp::kSum)->wait();
    const bool last = world.rank() == world.size() - 1;
    // MPI's own calls cannot be taken back: whoever comes later finds nobody and has to be ended.
    if (last && !shared) continue;
    if (last) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    const std::string message =
        error_of([&] { world.all_reduce(*rank.first, value, ReduceOp::kSum)->wait(); });
    CAPTURE(message);
    CHECK(contains(message, shared ? fmt::format("waited 0.2 s for rank {} (group of {})",
                                                 world.size() - 1, world.size())
                                   : "waited 0.2 s for the other ranks"));
  }
}

TEST_CASE("place on the host") {
  MpiRuntime runtime;
  CHECK(MpiRuntime::available());
  CHECK(runtime.local_size() == runtime.world().size());  // mpirun of the tests uses one host
  CHECK(runtime.local_rank() == runtime.world().rank());
  CHECK(!runtime.host_name().empty());
}
