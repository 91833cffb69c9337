// What calls take: rows before measurements before estimates; collectives by their formula.
#include "tools/predict/call_rates.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

Rates test_rates() {
  Rates rates;
  rates.flops_per_s = {{DType::kF32, 1e9}, {DType::kBF16, 4e9}};
  rates.memory_bytes_per_s = 1e8;
  rates.kernel_us = 2;
  rates.issue_us = 0.5;
  rates.ranks_per_node = 4;
  rates.inside_node = {.latency_us = 10, .bytes_per_s = 1e9};
  rates.between_nodes = {.latency_us = 100, .bytes_per_s = 1e8};
  rates.host_copy = {.latency_us = 5, .bytes_per_s = 1e7};
  return rates;
}

meta::KernelCall call_of(std::string shape, DType dtype, Cost cost) {
  return {.kernel = "matmul", .shape = std::move(shape), .dtype = dtype, .cost = cost};
}

double us(double seconds) { return seconds * 1e6; }

TEST_CASE("call rates: an estimate is the longer of products and bytes, and a kernel's least") {
  CallRates rates(test_rates());
  const auto estimate = [&](const char* shape, DType dtype, int64_t flops, int64_t bytes) {
    return us(rates.kernel_seconds(call_of(shape, dtype, {.flops = flops, .bytes = bytes})));
  };
  CHECK(estimate("a", DType::kF32, 5000, 100) == doctest::Approx(5));
  CHECK(estimate("b", DType::kF32, 5000, 1000) == doctest::Approx(10));
  CHECK(estimate("c", DType::kBF16, 40000, 0) == doctest::Approx(10));
  CHECK(estimate("d", DType::kF64, 3000, 0) == doctest::Approx(3));  // no rate: as f32
  CHECK(estimate("e", DType::kF32, 0, 0) == doctest::Approx(2));
  CHECK(rates.distinct_calls().estimated == 5);
  CHECK(us(rates.issue_seconds()) == doctest::Approx(0.5));
  CHECK(us(rates.host_copy_seconds(100)) == doctest::Approx(15));
}

TEST_CASE("call rates: rows, then measurements, once for each distinct call") {
  Rates given = test_rates();
  given.kernels[{"matmul", "known", DType::kF32}] = 7;
  int measured = 0;
  CallRates rates(given, [&](const meta::KernelCall& call) -> std::optional<double> {
    ++measured;
    if (call.shape == "too large") return std::nullopt;
    return 11e-6;
  });
  const auto taken = [&](const char* shape, DType dtype = DType::kF32) {
    return us(rates.kernel_seconds(call_of(shape, dtype, {.flops = 3000})));
  };
  for (int again = 0; again < 3; ++again) {
    CHECK(taken("known") == doctest::Approx(7));
    CHECK(taken("new") == doctest::Approx(11));
    CHECK(taken("too large") == doctest::Approx(3));
  }
  CHECK(taken("known", DType::kBF16) == doctest::Approx(11));  // another call
  CHECK(measured == 3);
  CHECK(rates.distinct_calls().rows == 1);
  CHECK(rates.distinct_calls().measured == 2);
  CHECK(rates.distinct_calls().estimated == 1);
  // What was measured is a row from now on, an estimate is not.
  given.kernels[{"matmul", "new", DType::kF32}] = 11;
  given.kernels[{"matmul", "known", DType::kBF16}] = 11;
  CHECK(rates.rates().kernels.size() == 3);
  for (const auto& [key, row] : given.kernels) {
    CHECK(rates.rates().kernels.at(key) == doctest::Approx(row));
  }
}

TEST_CASE("call rates: a collective takes a latency and its bytes, inside a node or between") {
  const CallRates rates(test_rates());
  using enum comm::Collective;
  const auto taken = [&](comm::Collective kind, std::vector<int> members) {
    return us(rates.collective_seconds({kind, 8000, members}));
  };
  CHECK(taken(kAllGather, {0, 1, 2, 3}) == doctest::Approx(10 + 6));
  CHECK(taken(kReduceScatter, {0, 1}) == doctest::Approx(10 + 4));
  CHECK(taken(kAllReduce, {0, 1, 2, 3}) == doctest::Approx(10 + 12));
  CHECK(taken(kBroadcast, {0, 1, 2, 3}) == doctest::Approx(10 + 8));
  // One rank of each node has its own link; all of two nodes use four links together.
  CHECK(taken(kAllGather, {1, 5}) == doctest::Approx(100 + 40));
  CHECK(taken(kAllGather, {0, 1, 2, 3, 4, 5, 6, 7}) == doctest::Approx(100 + 17.5));
  CHECK(taken(kAllReduce, {3, 4}) == doctest::Approx(100 + 80));
  // Together they are no faster than a node inside.
  Rates quick = test_rates();
  quick.between_nodes.bytes_per_s = 9e8;
  CHECK(us(CallRates(quick).collective_seconds({kAllGather, 8000, {2, 3, 4, 5}})) ==
        doctest::Approx(100 + 6));
}

}  // namespace
}  // namespace fsdp::tools
