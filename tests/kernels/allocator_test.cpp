// The stream-ordered allocator: no overlap, reuse, coalescing, repeated addresses, and memory that
// stays close to what the ledger counts.
// Requirements: S3.17.
#include "kernels/cpu/allocator.h"

#include <cstring>
#include <fstream>
#include <future>
#include <random>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"

namespace fsdp::cpu {
namespace {

// Sanitizers keep memory of their own for every byte that is touched.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kShadowMemory = true;
#else
constexpr bool kShadowMemory = false;
#endif

constexpr size_t kUnit = kAllocationGranularity;

TEST_CASE("a heap splits, joins and fits best") {
  Heap heap(size_t{1} << 30);
  std::byte* a = heap.allocate(8 * kUnit);
  std::byte* b = heap.allocate(4 * kUnit);
  std::byte* c = heap.allocate(2 * kUnit);
  std::byte* d = heap.allocate(1 * kUnit);
  CHECK(reinterpret_cast<uintptr_t>(a) % (size_t{2} << 20) == 0);
  CHECK(b == a + 8 * kUnit);
  CHECK(heap.high_water() == 15 * kUnit);
  heap.release(a, 8 * kUnit);
  heap.release(c, 2 * kUnit);
  CHECK(heap.allocate(2 * kUnit) == c);  // the closest fit, not the first
  CHECK(heap.allocate(3 * kUnit) == a);  // split
  heap.release(a, 3 * kUnit);
  heap.release(c, 2 * kUnit);
  heap.release(b, 4 * kUnit);  // joins both neighbours
  CHECK(heap.allocate(14 * kUnit) == a);
  heap.release(d, 1 * kUnit);
  CHECK(heap.allocate(3 * kUnit) == d);  // grows at the top, from the free block there
  CHECK(heap.high_water() == 17 * kUnit);
}

#ifndef __SANITIZE_THREAD__  // takes addresses of its own choice
TEST_CASE("a heap that grows takes the addresses that it uses, and no more") {
  Heap first(size_t{1} << 40, Heap::Addresses::kGrown);  // more than any machine has
  Heap second(size_t{1} << 40, Heap::Addresses::kGrown);
  std::byte* a = first.allocate(3 * kUnit);
  std::byte* b = second.allocate(5 * kUnit);
  REQUIRE(a);
  REQUIRE(b);
  constexpr size_t kLarge = size_t{5} << 20;
  std::byte* large = first.allocate(kLarge);
  CHECK(large == a + 3 * kUnit);  // in one piece, although the second lies elsewhere
  mark_usable(a, 3 * kUnit);      // as the backend does
  mark_usable(large, kLarge);
  mark_usable(b, 5 * kUnit);
  std::memset(a, 1, 3 * kUnit);
  std::memset(large, 2, kLarge);
  std::memset(b, 3, 5 * kUnit);
  CHECK(a[3 * kUnit - 1] == std::byte{1});
  CHECK(large[kLarge - 1] == std::byte{2});
  first.release(large, kLarge);
  CHECK(first.allocate(2 * kUnit) == large);
  CHECK(first.high_water() == 3 * kUnit + kLarge);
  CHECK(first.allocate(size_t{1} << 41) == nullptr);  // beyond its limit
}

TEST_CASE("a limit of the process's addresses below the machine's memory leaves room to work") {
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t used = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  rlimit limited = before;
  limited.rlim_cur = used + (size_t{256} << 20);
  REQUIRE(setrlimit(RLIMIT_AS, &limited) == 0);
  {
    CpuBackend backend;
    void* data =
        backend.allocate(backend.compute_stream(), size_t{64} << 20, MemoryCategory::kActivation);
    CHECK(data != nullptr);
    const std::string error = test::error_of([&] {
      backend.allocate(backend.compute_stream(), size_t{512} << 20, MemoryCategory::kGradient);
    });
    CHECK(test::contains(error, "536870912 bytes of gradient on stream compute: out of memory"));
    CHECK(test::contains(error, fmt::format("this process may use {} MiB of addresses and uses ",
                                            limited.rlim_cur >> 20)));
    backend.release(backend.compute_stream(), data, size_t{64} << 20, MemoryCategory::kActivation);
  }
  setrlimit(RLIMIT_AS, &before);
}
#endif

TEST_CASE("blocks in use never overlap") {
  Heap heap(size_t{1} << 30);
  std::mt19937 random(1);
  std::map<std::byte*, size_t> used;
  size_t total = 0, peak = 0;
  for (int i = 0; i < 20000; ++i) {
    if (used.empty() || random() % 100 < 51) {
      const size_t bytes = (1 + random() % (random() % 10 ? 20 : 500)) * kUnit;
      std::byte* data = heap.allocate(bytes);
      REQUIRE(data);
      const auto next = used.lower_bound(data);
      if (next != used.end()) REQUIRE(data + bytes <= next->first);
      if (next != used.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= data);
      used.emplace(data, bytes);
      total += bytes;
      peak = std::max(peak, total);
    } else {
      auto victim = std::next(used.begin(), static_cast<long>(random() % used.size()));
      heap.release(victim->first, victim->second);
      total -= victim->second;
      used.erase(victim);
    }
  }
  MESSAGE("random sizes: touched / peak = " << static_cast<double>(heap.high_water()) /
                                                   static_cast<double>(peak));
  for (const auto& [data, bytes] : used) heap.release(data, bytes);
  CHECK(heap.allocate(heap.high_water()) != nullptr);  // all joined into one
}

TEST_CASE("memory is counted and reused in program order") {
  CpuBackend backend;
  Stream& stream = backend.compute_stream();
  const auto other = backend.create_stream("other");
  std::promise<void> gate;
  backend.host_task(stream, "gate", 0, [&] { gate.get_future().wait(); });
  void* a = backend.allocate(stream, 1000, MemoryCategory::kGradient);
  CHECK(backend.ledger().usage().total_current == 1024);
  std::vector<char> seen(1000);
  backend.fill_zero(stream, a, 1000);
  backend.copy(stream, seen.data(), a, 1000);
  backend.release(stream, a, 1000, MemoryCategory::kGradient);
  CHECK(backend.ledger().usage().total_current == 0);
  void* b = backend.allocate(stream, 900, MemoryCategory::kActivation);
  CHECK(b == a);  // although nothing has run: the stream's order protects the first use
  void* c = backend.allocate(*other, 900, MemoryCategory::kActivation);
  CHECK(c != a);  // another stream has its own order
  backend.host_task(stream, "overwrite", 0, [b] { std::memset(b, 7, 900); });
  gate.set_value();
  backend.synchronize(stream);
  CHECK(seen == std::vector<char>(1000, 0));
  backend.release(stream, b, 900, MemoryCategory::kActivation);
  backend.release(*other, c, 900, MemoryCategory::kActivation);
  const MemoryUsage usage = backend.ledger().usage();
  CHECK(usage.total_current == 0);
  CHECK(usage.total_peak == 2048);
  CHECK(backend.allocate(stream, 0, MemoryCategory::kActivation) == nullptr);
}

TEST_CASE("running out of memory names what was asked for and shows the ledger") {
  CpuBackend backend;
  std::string message;
  try {
    backend.allocate(backend.compute_stream(), size_t{1} << 50, MemoryCategory::kOptimizerState);
  } catch (const Error& e) {
    message = e.what();
  }
  CHECK(message.find("[allocate] 1125899906842624 bytes of optimizer state on stream compute") ==
        0);
  CHECK(message.find(backend.ledger().table()) != std::string::npos);
  CHECK(backend.ledger().usage().total_current == 0);
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// The allocations of a training step: activations that live until backward, short-lived work
// between them, gradients in the order of backward. Returns the addresses it got.
std::vector<void*> training_step(CpuBackend& backend, size_t unit) {
  Stream& stream = backend.compute_stream();
  std::vector<void*> addresses;
  const auto make = [&](size_t bytes) {
    void* data = backend.allocate(stream, bytes, MemoryCategory::kActivation);
    backend.host_task(stream, "touch", 0, [data, bytes] { std::memset(data, 1, bytes); });
    addresses.push_back(data);
    return data;
  };
  const auto drop = [&](void* data, size_t bytes) {
    backend.release(stream, data, bytes, MemoryCategory::kActivation);
  };
  std::vector<std::pair<void*, size_t>> saved;
  for (int layer = 0; layer < 12; ++layer) {
    for (const size_t width : {1, 3, 1, 1, 4, 4})
      saved.emplace_back(make(width * unit), width * unit);
    void* work = make(2 * unit);
    drop(work, 2 * unit);
  }
  void* flowing = make(unit);
  while (!saved.empty()) {
    const auto [data, bytes] = saved.back();
    saved.pop_back();
    void* gradient = make(bytes);
    drop(flowing, unit);
    drop(data, bytes);
    flowing = make(unit);
    drop(gradient, bytes);
  }
  drop(flowing, unit);
  return addresses;
}

TEST_CASE("a repeated step gets the same addresses and touches little more than its peak") {
  CpuBackend backend;
  const size_t before = resident_bytes();
  const size_t unit = (size_t{1} << 20) + 4096;  // 1 MiB and a little
  const std::vector<void*> first = training_step(backend, unit);
  CHECK(training_step(backend, unit) == first);
  backend.synchronize(backend.compute_stream());
  const size_t grown = resident_bytes() - before;
  const size_t peak = backend.ledger().usage().total_peak;
  MESSAGE("peak " << (peak >> 20) << " MiB, resident " << (grown >> 20) << " MiB");
  if (!kShadowMemory) CHECK(grown < peak + peak / 20 + (size_t{8} << 20));
}

}  // namespace
}  // namespace fsdp::cpu
