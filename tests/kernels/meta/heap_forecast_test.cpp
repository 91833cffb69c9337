// The heaps that a backend would have, beside those that it has: the same high-water mark after any
// calls.
#include "kernels/meta/heap_forecast.h"

#include <random>

#include <doctest/doctest.h>

#include "kernels/cpu/allocator.h"
#include "kernels/cpu/cpu_backend.h"

namespace fsdp::meta {
namespace {

using cpu::CpuBackend, cpu::StreamAllocator;

TEST_CASE("heap forecast: random calls on two streams, as the allocator places them") {
  CpuBackend backend;  // for its streams alone
  const std::unique_ptr<Stream> other = backend.create_stream("other");
  StreamAllocator allocator;
  HeapForecast forecast(1);
  struct Block {
    const Stream* stream;
    std::byte* data;
    size_t bytes;
  };
  std::vector<Block> blocks;
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i) {
    if (!blocks.empty() && random() % 5 < 2) {
      const size_t chosen = random() % blocks.size();
      const Block block = blocks[chosen];
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(chosen));
      allocator.release(*block.stream, block.data, block.bytes);
      forecast.release(reinterpret_cast<uintptr_t>(block.data), block.bytes);
    } else {
      const Stream& stream = random() % 3 == 0 ? *other : backend.compute_stream();
      const size_t bytes = (1 + random() % 100) * kAllocationGranularity;
      const size_t with = allocator.high_water() + allocator.growth(stream, bytes);
      CHECK(forecast.high_water_with(stream, bytes) == with);
      std::byte* const data = allocator.allocate(stream, bytes);
      forecast.place(stream, reinterpret_cast<uintptr_t>(data), bytes);
      CHECK(allocator.high_water() == with);
      blocks.push_back({&stream, data, bytes});
    }
    REQUIRE(forecast.high_water() == allocator.high_water());
    REQUIRE(forecast.in_use() == allocator.in_use());
  }
  CHECK(allocator.high_water() > allocator.in_use());  // there are gaps
}

}  // namespace
}  // namespace fsdp::meta
