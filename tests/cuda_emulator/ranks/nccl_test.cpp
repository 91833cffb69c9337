// The NCCL transport over the emulator's NCCL: collectives, splits, whole training steps, and what
// happens when a rank does not come or NCCL fails. What NCCL itself does needs GPUs.
#include <atomic>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "comm/nccl_transport.h"
#include "core/layer_args.h"
#include "core/machine_error.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/comm_checks.h"
#include "tests/support/sharded_run.h"

namespace fsdp::test {
namespace {

using comm::Collective;
using comm::Communicator;
using comm::NcclOptions;

// `body` on ranks with a GPU each, `world` over NCCL.
void on_nccl(int ranks, const std::function<void(Communicator& world, CommRank& rank)>& body,
             const NcclOptions& options = {}) {
  comm::run_local_ranks(ranks, [&](Communicator& control) {
    CommRank rank(std::make_unique<cuda::CudaBackend>());
    const auto world = comm::make_nccl_world(control, options);
    body(*world, rank);
  });
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("collectives over NCCL, every dtype and op, plain and registered memory") {
  for (const int ranks : {1, 2, 3}) {
    on_nccl(ranks, [](Communicator& world, CommRank& rank) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) {
        check_collectives(world, rank, dtype, 33, Memory::kPlain);
        check_collectives(world, rank, dtype, 4099, Memory::kFromCommunicator);
      }
    });
  }
}

TEST_CASE("NCCL's groups split by color and key, and split again") {
  on_nccl(4, [](Communicator& world, CommRank& rank) {
    const auto half =
        world.split([](int r) { return comm::SplitPlace{.color = r % 2, .key = -r}; }, "half");
    CHECK(half->size() == 2);
    CHECK(half->exchange(std::to_string(world.rank()))[0] == std::to_string(2 + world.rank() % 2));
    check_collectives(*half, rank, DType::kF32, 5, Memory::kFromCommunicator);
    const auto alone = half->split([](int r) { return comm::SplitPlace{.color = r}; }, "alone");
    CHECK(alone->size() == 1);
    check_collectives(world, rank, DType::kF32, 7, Memory::kPlain);
  });
}

TEST_CASE("registered memory is counted while it is there") {
  on_nccl(2, [](Communicator& world, CommRank& rank) {
    MemoryLedger& ledger = rank.backend->ledger();
    const auto before = ledger.usage().current;
    auto memory = world.allocate(*rank.backend, 4096, MemoryCategory::kUnshardedParameter);
    CHECK(ledger.usage().current[static_cast<size_t>(MemoryCategory::kUnshardedParameter)] ==
          before[static_cast<size_t>(MemoryCategory::kUnshardedParameter)] + 4096);
    memory = nullptr;
    CHECK(ledger.usage().current == before);
  });
}

void put_slow_task(CommRank& rank, Stream& stream) {
  rank.backend->host_task(stream, "slow", 0,
                          [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
}

TEST_CASE("registered memory goes when its last collective is over on all ranks") {
  on_nccl(2, [](Communicator& world, CommRank& rank) {
    CommTensor buffer =
        comm_tensor(world, *rank.backend, 64, DType::kF32, Memory::kFromCommunicator);
    const std::vector<float> values(64, 7.0f);
    buffer.tensor.write(values.data());
    rank.backend->synchronize(rank.backend->compute_stream());
    if (world.rank() == 1) put_slow_task(rank, *rank.first);
    const EventPtr done = world.all_gather(*rank.first, buffer.tensor);
    if (world.rank() == 0) {
      buffer = {};
    } else {
      done->wait();
      CHECK(buffer.tensor.to_host<float>() == values);
    }
  });
}

TEST_CASE("registered memory goes when what computes with it is done") {
  on_nccl(2, [](Communicator& world, CommRank& rank) {
    Stream& compute = rank.backend->compute_stream();
    CommTensor buffer =
        comm_tensor(world, *rank.backend, 64, DType::kF32, Memory::kFromCommunicator);
    const std::vector<float> values(64, 7.0f);
    buffer.tensor.write(values.data());
    const Tensor copied = Tensor::empty(*rank.backend, Shape{64}, DType::kF32);
    std::atomic<bool> gone = false;  // as it must not be for as long as this task takes
    rank.backend->host_task(compute, "slow", 0, [&] {
      for (int i = 0; i < 100 && !gone; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    rank.backend->copy(compute, copied.data(), buffer.tensor.data(), copied.bytes());
    buffer = {};
    gone = true;
    CHECK(copied.to_host<float>() == values);
  });
}

TEST_CASE("collectives of one NCCL communicator on two streams run in the order of issue") {
  on_nccl(2, [](Communicator& world, CommRank& rank) {
    const Tensor a = Tensor::from_host<float>(*rank.backend, Shape{1}, {1});
    const Tensor b = Tensor::from_host<float>(*rank.backend, Shape{1}, {10});
    rank.backend->synchronize(rank.backend->compute_stream());
    if (world.rank() == 0) put_slow_task(rank, *rank.first);
    const EventPtr first = world.all_reduce(*rank.first, a, comm::ReduceOp::kSum);
    world.all_reduce(*rank.second, b, comm::ReduceOp::kSum)->wait();
    first->wait();
    CHECK(a.item() == 2);
    CHECK(b.item() == 20);
  });
}

TEST_CASE("the ring shows which collectives are done") {
  on_nccl(2, [](Communicator& world, CommRank& rank) {
    const auto gather = world.duplicate("gather");
    const Tensor buffer = finished_zeros(rank, 8);
    gather->all_gather(*rank.first, buffer)->wait();
    rank.backend->synchronize(*rank.first);
    const auto done = [&] {
      return gather->ring().snapshot().records.back().state == comm::CallState::kDone;
    };
    for (int i = 0; i < 500 && !done(); ++i) {  // the watchdog looks every few milliseconds
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(done());
  });
}

TEST_CASE("sharded steps over NCCL are those over the host") {
  for (const comm::Strategy strategy : {comm::Strategy::kFullShard, comm::Strategy::kHybridShard}) {
    RunSpec spec;
    spec.subject = causal_lm(small_llama());
    spec.ranks = 4;
    spec.steps = 2;
    spec.rows = 8;
    spec.fsdp.strategy = strategy;
    if (strategy == comm::Strategy::kHybridShard) spec.fsdp.shard_size = 2;
    spec.backend = [](int) { return std::make_unique<cuda::CudaBackend>(); };
    CAPTURE(choice_name(strategy));
    const RunResult expected = train(spec);
    std::vector<RunResult> results(4);
    comm::run_local_ranks(4, [&](Communicator& control) {
      const auto world = comm::make_nccl_world(control, {});
      results[static_cast<size_t>(world->rank())] = train_on(*world, spec);
    });
    for (const RunResult& result : results) CHECK((result == expected));
  }
}

TEST_CASE("every communicator is made with the blocks that a collective may take") {
  emulator::Settings settings = emulator::settings();
  settings.nccl_max_ctas = 8;  // of another number the emulator's NCCL makes none
  const emulator::Configured configured(settings);
  NcclOptions options;
  options.max_ctas = 8;
  on_nccl(
      2,
      [](Communicator& world, CommRank& rank) {
        const auto reduce = world.duplicate("reduce");
        check_collectives(*reduce, rank, DType::kF32, 33, Memory::kPlain);
      },
      options);
}

TEST_CASE("fixed order is refused over NCCL, by name") {
  RunSpec spec;
  spec.fsdp.fixed_order = true;
  spec.backend = [](int) { return std::make_unique<cuda::CudaBackend>(); };
  comm::run_local_ranks(2, [&](Communicator& control) {
    const auto world = comm::make_nccl_world(control, {});
    CHECK(error_of([&] { train_on(*world, spec); }).starts_with("fsdp.fixed_order: NCCL"));
  });
}

TEST_CASE("a stream of the CPU is refused") {
  on_nccl(2, [](Communicator& world, CommRank&) {
    cpu::CpuBackend cpu;
    const Tensor buffer = Tensor::zeros(cpu, Shape{2}, DType::kF32);
    CHECK(error_of([&] {
            world.all_gather(cpu.compute_stream(), buffer);
          }).find("expected one of a GPU, got one of cpu") != std::string::npos);
  });
}

// Where a rank does not come, the others learn which collective they wait in, and their streams
// come to an end.
TEST_CASE("a rank that does not come: the watchdog says where the others wait") {
  std::mutex mutex;
  std::vector<std::string> reasons;
  NcclOptions options;
  options.timeout = std::chrono::milliseconds(300);
  options.failed = [&](const std::string& reason) {
    const std::lock_guard lock(mutex);
    reasons.push_back(reason);
  };
  on_nccl(
      2,
      [](Communicator& world, CommRank& rank) {
        const auto reduce = world.duplicate("reduce");
        const Tensor buffer = finished_zeros(rank, 8);
        if (world.rank() == 0) {
          rank.backend->set_scope("blocks.1");
          reduce->all_reduce(*rank.first, buffer, comm::ReduceOp::kSum);
          CHECK(error_of([&] { rank.backend->synchronize(*rank.first); }) != "");
          std::string error;  // of the next call, when the watchdog has told
          for (int i = 0; i < 500 && error.empty(); ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            error = error_of([&] { reduce->exchange(""); });
          }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(world.rank() == 0 ? 0 : 1000));
      },
      options);
  REQUIRE(reasons.size() == 1);
  CHECK(reasons[0] ==
        "no end of all_reduce, unit blocks.1, 32 bytes of f32 (reduce) within 0.3 s: a rank did "
        "not come to it");
}

// As tools/launch does for ranks that are threads.
void on_told_ranks(int ranks, const std::function<void(Communicator&, CommRank&)>& body) {
  comm::run_local_ranks(ranks, [&](Communicator& control) {
    NcclOptions options;
    options.failed = [&](const std::string& reason) { control.abort(reason); };
    options.given_up = [&] { return control.aborted(); };
    CommRank rank(std::make_unique<cuda::CudaBackend>());
    const auto world = comm::make_nccl_world(control, options);
    body(*world, rank);
  });
}

TEST_CASE("one of N ranks throws: the others, which wait for it, end at once, and know its words") {
  for (const int ranks : {2, 4}) {
    for (const bool told : {true, false}) {  // before its error unwinds
      CAPTURE(ranks);
      CAPTURE(told);
      const auto begin = std::chrono::steady_clock::now();
      const auto body = [&](Communicator& world, CommRank& rank) {
        const auto reduce = world.duplicate("reduce");
        const CommTensor buffer =
            comm_tensor(*reduce, *rank.backend, 64, DType::kF32, Memory::kFromCommunicator);
        world.all_gather(*rank.first, buffer.tensor);
        if (world.rank() == 1) {
          if (told) world.abort("the disk is full");
          throw Error("the disk is full");
        }
        const auto waits = [&] {
          reduce->all_reduce(*rank.second, buffer.tensor, comm::ReduceOp::kSum);
          rank.backend->synchronize(*rank.second);
        };
        CHECK(error_of(waits) != "");
      };
      CHECK(error_of([&] { on_told_ranks(ranks, body); }) == "rank 1: the disk is full");
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
    }
  }
}

TEST_CASE("all communicators are aborted at once: one may be queued behind another") {
  NcclOptions options;
  options.timeout = std::chrono::milliseconds(300);
  std::atomic<bool> done{false};
  on_nccl(
      2,
      [&](Communicator& world, CommRank& rank) {
        const auto behind = world.duplicate("behind"), stuck = world.duplicate("stuck");
        const Tensor a = finished_zeros(rank, 8), b = finished_zeros(rank, 8);
        behind->all_reduce(*rank.first, a, comm::ReduceOp::kSum);  // the first connects, and waits
        rank.backend->synchronize(*rank.first);
        if (world.rank() == 0) {
          const EventPtr never = stuck->all_reduce(*rank.first, a, comm::ReduceOp::kSum);
          rank.backend->wait(*rank.second, never);
          behind->all_reduce(*rank.second, b, comm::ReduceOp::kSum);
          CHECK(error_of([&] { rank.backend->synchronize(*rank.second); }) != "");
          done = true;
        }
        while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      },
      options);
}

TEST_CASE("a collective that meets a fault tells of the fault, as an error of the machine") {
  for (const bool connected : {true, false}) {
    std::function<void()> lose_context;  // within NCCL's call: before it the backend would tell
    emulator::Settings settings;
    settings.faulty_kernel = 1;
    settings.nccl_call = [&] {
      if (lose_context) lose_context();
    };
    const emulator::Configured configured(settings);
    std::string told, by_watchdog;
    std::atomic<bool> done{false};
    std::mutex mutex;
    NcclOptions options;
    options.failed = [&](const std::string& reason) {
      const std::lock_guard lock(mutex);
      by_watchdog = reason;
    };
    on_nccl(
        2,
        [&](Communicator& world, CommRank& rank) {
          const Tensor buffer = finished_zeros(rank, 8);
          if (connected) world.all_gather(*rank.first, buffer);
          rank.backend->synchronize(*rank.first);
          world.barrier();
          if (world.rank() == 0) {
            Tensor sum = Tensor::empty(*rank.backend, {8}, DType::kF32);
            lose_context = [&] {
              rank.backend->run(*rank.first, AddArgs{buffer, buffer, sum});
              CHECK(error_of([&] { rank.backend->synchronize(*rank.first); }) != "");
            };
            try {
              world.all_gather(*rank.first, buffer);
            } catch (const MachineError& error) {
              told = error.what();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for the watchdog
            done = true;
          }
          while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        options);
    CHECK(told.find("an illegal memory access was encountered") != std::string::npos);
    CHECK_FALSE(by_watchdog.empty());
  }
}

TEST_CASE("an error that NCCL reports ends the job with NCCL's words") {
  std::atomic<int> told{0};
  NcclOptions options;
  options.failed = [&](const std::string& reason) {
    CHECK(reason == "world: an error of NCCL: the emulator was told to say so");
    ++told;
  };
  on_nccl(
      2,
      [&](Communicator& world, CommRank& rank) {
        const Tensor buffer = finished_zeros(rank, 8);
        world.barrier();
        emulator::Settings settings;
        settings.nccl_error = 6;
        emulator::configure(settings);
        std::string error;
        for (int i = 0; i < 500 && error.empty(); ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          // Nothing that waits for the other rank, which may be told first and be gone.
          error = error_of([&] { world.all_gather(*rank.first, buffer); });
        }
        CHECK(error.find("an error of NCCL") != std::string::npos);
        for (int i = 0; i < 500 && told < 2; ++i) {  // the collective may hear of it first
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
      },
      options);
  emulator::configure({});
  CHECK(told == 2);
}

TEST_CASE("a collective that is issued while the watchdog gives up uses nothing that is freed") {
  std::atomic<int> told{0}, issued{0};
  NcclOptions options;
  options.timeout = std::chrono::milliseconds(100);
  options.failed = [&](const std::string&) { ++told; };
  emulator::Settings settings;
  settings.nccl_call = [&] {  // in the second one the timeout of the first passes
    if (issued++ == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  };
  const emulator::Configured configured(settings);
  const int64_t before = emulator::nccl_uses_of_freed();
  on_nccl(
      2,
      [&](Communicator& world, CommRank& rank) {
        const Tensor buffer = finished_zeros(rank, 8);
        if (world.rank() == 0) {
          std::string error;
          for (int i = 0; i < 500 && error.empty(); ++i) {
            error = error_of([&] { world.all_reduce(*rank.first, buffer, comm::ReduceOp::kSum); });
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
          CHECK(error.find("a rank did not come to it") != std::string::npos);
          CHECK(issued >= 2);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(world.rank() == 0 ? 0 : 1000));
      },
      options);
  CHECK(told == 1);
  CHECK(emulator::nccl_uses_of_freed() == before);
}

TEST_CASE("ranks that never come to the first communicator are given up") {
  NcclOptions options;
  options.timeout = std::chrono::milliseconds(200);
  comm::run_local_ranks(2, [&](Communicator& control) {
    const CommRank rank(std::make_unique<cuda::CudaBackend>());
    if (control.rank() == 1) {
      control.exchange(std::string(128, '-'));  // takes the id, of so many bytes, and goes
      return;
    }
    CHECK(error_of([&] { comm::make_nccl_world(control, options); }) ==
          "[nccl] ncclCommInitRank: not all ranks came within 0.2 s");
  });
}

}  // namespace
}  // namespace fsdp::test
