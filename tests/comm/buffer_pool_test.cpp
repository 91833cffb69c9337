// Lending of buffers.
#include "comm/buffer_pool.h"

#include <future>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cpu/cpu_backend.h"

using namespace fsdp;
using namespace fsdp::comm;

namespace {

void with_pool(size_t buffers, const std::function<void(BufferPool&, cpu::CpuBackend&)>& body) {
  run_local_ranks(1, [&](Communicator& world) {
    cpu::CpuBackend backend;
    BufferPool pool(world, backend, buffers, 1000, MemoryCategory::kUnshardedParameter);
    body(pool, backend);
  });
}

}  // namespace

TEST_CASE("the preferred buffer if it is free, else the next, else none") {
  with_pool(3, [](BufferPool& pool, cpu::CpuBackend&) {
    CHECK(pool.size() == 3);
    CHECK(pool.acquire(1) == 1);
    CHECK(pool.acquire(1) == 2);
    CHECK(pool.acquire(1) == 0);
    CHECK(pool.acquire(1) == BufferPool::kNone);
    pool.release(2, nullptr);
    CHECK(pool.acquire(1) == 2);
    CHECK(pool.acquire(0) == BufferPool::kNone);
  });
}

TEST_CASE("buffers do not overlap and stay where they are") {
  with_pool(2, [](BufferPool& pool, cpu::CpuBackend&) {
    const auto address = [&](int i) { return static_cast<std::byte*>(pool.data(i)); };
    std::byte* const first = address(0);
    std::byte* const second = address(1);
    CHECK((first + 1000 <= second || second + 1000 <= first));
    pool.release(pool.acquire(0), nullptr);
    CHECK(address(pool.acquire(0)) == first);
    CHECK(address(pool.acquire(0)) == second);
  });
}

TEST_CASE("who takes a buffer learns what the last tenant has to finish first") {
  with_pool(1, [](BufferPool& pool, cpu::CpuBackend& backend) {
    CHECK(pool.acquire(0) == 0);
    const EventPtr done = backend.record(backend.compute_stream());
    pool.release(0, done);
    CHECK(pool.free_since(pool.acquire(0)) == done);
  });
}

TEST_CASE("a new buffer may be bytes with which the compute stream is not done yet") {
  run_local_ranks(1, [](Communicator& world) {
    cpu::CpuBackend backend;
    std::promise<void> go;
    backend.host_task(backend.compute_stream(), "before", 0,
                      [done = go.get_future().share()] { done.wait(); });
    BufferPool pool(world, backend, 1, 1000, MemoryCategory::kUnshardedParameter);
    const EventPtr free = pool.free_since(pool.acquire(0));
    REQUIRE(free);
    CHECK(!free->ready());
    go.set_value();
    free->wait();
  });
}

TEST_CASE("a pool of none lends none; memory is counted once, in its category") {
  run_local_ranks(2, [](Communicator& world) {
    cpu::CpuBackend backend;
    const auto counted = [&](MemoryCategory category) {
      return backend.ledger().usage().current[static_cast<size_t>(category)];
    };
    {
      BufferPool none(world, backend, 0, 1000, MemoryCategory::kGradient);
      CHECK(none.acquire(0) == BufferPool::kNone);
      CHECK(counted(MemoryCategory::kGradient) == 0);
      BufferPool pool(world, backend, 3, 1000, MemoryCategory::kGradient);
      CHECK(counted(MemoryCategory::kGradient) == 3 * rounded_bytes(1000));
      pool.release(pool.acquire(2), nullptr);
      CHECK(counted(MemoryCategory::kGradient) == 3 * rounded_bytes(1000));
    }
    CHECK(counted(MemoryCategory::kGradient) == 0);
  });
}

TEST_CASE("until given back: memory comes with the first tenant and goes when nobody holds it") {
  run_local_ranks(2, [](Communicator& world) {
    cpu::CpuBackend backend;
    const auto held = [&] {
      return backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kGradient)] /
             rounded_bytes(1000);
    };
    BufferPool pool(world, backend, 3, 1000, MemoryCategory::kGradient,
                    BufferPool::Lifetime::kUntilGivenBack);
    CHECK(held() == 0);
    const int first = pool.acquire(1), second = pool.acquire(1);
    CHECK(held() == 2);
    CHECK(pool.free_since(first) != nullptr);  // the bytes may have been others'
    CHECK_FALSE(pool.all_lent());
    pool.release(first, backend.record(backend.compute_stream()));
    CHECK(held() == 2);
    pool.give_back();
    CHECK(held() == 1);
    CHECK(pool.acquire(first) == first);
    CHECK(held() == 2);
    CHECK(pool.acquire(0) == 0);
    CHECK(pool.all_lent());
    for (const int buffer : {0, first, second}) pool.release(buffer, nullptr);
    pool.give_back();
    CHECK(held() == 0);
  });
}
