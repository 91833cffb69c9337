// Timing of kernels on the CPU: how often and on which inputs they are called.
#include "tools/bench/kernel_bench.h"

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"

namespace fsdp::tools {
namespace {

struct Calls {
  int prepared = 0;
  std::vector<int> order;  // which set each call worked on
};

// A kernel that takes `us`; its inputs are `bytes` large.
KernelCase sleeper(Calls& calls, int64_t bytes, int us, int operations = 1) {
  const auto prepare = [=, &calls](meta::CallTensors& tensors) -> meta::KernelRun {
    const Tensor memory = tensors.make({Shape{bytes}, DType::kF32, nullptr, kOut});
    const int set = calls.prepared++;
    return [=, &calls](Backend& backend, Stream& stream) {
      static_cast<void>(memory);
      calls.order.push_back(set);
      for (int i = 0; i < operations; ++i) {
        backend.host_task(stream, "sleep", 0,
                          [us] { std::this_thread::sleep_for(std::chrono::microseconds(us)); });
      }
    };
  };
  return {
      "", "", {}, {.kernel = "sleep", .cost = {.flops = 3000, .bytes = bytes}, .prepare = prepare}};
}

}  // namespace

TEST_CASE("kernel bench: inputs rotate over more memory than the cache") {
  cpu::CpuBackend backend;
  KernelInputs inputs(backend);
  Calls calls;
  const KernelResult result = time_kernel(inputs, sleeper(calls, 1024, 0),
                                          {.cache_bytes = 8192, .seconds = 0, .least_calls = 9});
  CHECK(calls.prepared == 5);  // 5 x 4 KiB, the first beyond 2 x 8 KiB
  CHECK(result.input_sets == 5);
  CHECK(result.calls >= 9);
  for (size_t i = 0; i < calls.order.size(); ++i) CHECK(calls.order[i] == static_cast<int>(i % 5));
  // The first round over all sets is not timed.
  CHECK(calls.order.size() == result.calls + 5);

  Calls large;
  time_kernel(inputs, sleeper(large, 1 << 20, 0), {.cache_bytes = 8192, .seconds = 0});
  CHECK(large.prepared == 2);
}

TEST_CASE("kernel bench: times are those of the device, of all operations of a call") {
  cpu::CpuBackend backend;
  KernelInputs inputs(backend);
  for (const int operations : {1, 2}) {
    Calls calls;
    const KernelResult result = time_kernel(inputs, sleeper(calls, 4, 2000, operations),
                                            {.cache_bytes = 1, .seconds = 0.01, .least_calls = 3});
    CHECK(result.seconds.least >= 0.002 * operations);
    CHECK(result.seconds.least <= result.seconds.median);
    CHECK(result.flops_per_s() == doctest::Approx(3000 / result.seconds.median));
    CHECK(result.bytes_per_s() == doctest::Approx(4 / result.seconds.median));
    CHECK(result.calls >= 3);
  }
}

TEST_CASE("kernel bench: as many calls as the time asks for") {
  cpu::CpuBackend backend;
  KernelInputs inputs(backend);
  Calls calls;
  const KernelResult result = time_kernel(inputs, sleeper(calls, 4, 500),
                                          {.cache_bytes = 1, .seconds = 0.05, .least_calls = 1});
  CHECK(result.calls >= 16);
  CHECK(result.calls <= 116);  // 0.05 s / 500 us, and a batch
}

TEST_CASE("kernel bench: long calls are not repeated seven times") {
  cpu::CpuBackend backend;
  KernelInputs inputs(backend);
  const auto calls = [&](double most_seconds) {
    Calls made;
    return time_kernel(inputs, sleeper(made, 4, 5000),
                       {.cache_bytes = 1, .seconds = 0.001, .most_seconds = most_seconds})
        .calls;
  };
  CHECK(calls(0.001) == 2);
  CHECK(calls(0.0125) <= 3);
  CHECK(calls(100) == 7);
}

TEST_CASE("kernel bench: rates and lines of a real device") {
  cpu::CpuBackend backend;
  const KernelTiming timing = {.cache_bytes = 1 << 20, .seconds = 0.001, .least_calls = 1};
  const auto table = kernel_table(
      kernel_extents({.shape = "elements=100000", .batch = 1, .length = 8}), "adam decoupled");
  const KernelBench bench = bench_kernels(backend, table, DType::kF32, timing);
  CHECK(bench.rates.copy_bytes_per_s > 1e8);
  CHECK(bench.rates.copy_bytes_per_s < 1e13);
  CHECK(bench.rates.product_flops_per_s > 1e8);
  CHECK(bench.rates.product_flops_per_s < 1e15);
  CHECK(bench.kernels.size() == 1);
  CHECK(bench.kernels[0].name == "adam decoupled");
  CHECK(bench.kernels[0].cost.bytes == 28 * 100000);
}

}  // namespace fsdp::tools
