// What calls take: rows before measurements before estimates; collectives by their formula.
#include "tools/predict/call_rates.h"

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "kernels/meta/meta_backend.h"
#include "tools/predict/machines.h"

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
namespace {

using enum comm::Collective;

constexpr double kBytes = 404e6;  // of a block of 202 M parameters, in bf16

double us(const Rates& rates, comm::Collective kind, double bytes, GroupPlace place,
          double percentile = 50) {
  return 1e6 * collective_seconds(rates, kind, bytes, place, percentile);
}

auto study(double us) { return doctest::Approx(us).epsilon(1e-5); }

TEST_CASE("fabric model: nodes of a group") {
  CHECK(place_of({0, 1, 2, 3}, 4).nodes == 1);
  CHECK(place_of({0, 1, 2, 3, 4}, 4).nodes == 2);
  CHECK(place_of({3, 11, 19}, 8).nodes == 3);
  CHECK(place_of({5}, 4).ranks == 1);
}

TEST_CASE("fabric model: a ring's steps inside a node and between nodes, then the bytes") {
  const Rates h100 = machine_rates("H100");
  CHECK(us(h100, kAllGather, kBytes, {8, 1}) == study(999.205));                       // study
  CHECK(us(h100, kReduceScatter, kBytes, {8, 1}) == study(999.205));                   // study
  CHECK(us(h100, kAllReduce, kBytes, {8, 1}) == study(1978.41));                       // study
  CHECK(us(h100, kAllGather, kBytes, {16, 2}) == study(1105.25));                      // study
  CHECK(us(h100, kAllGather, kBytes, {512, 64}) == study(3514.96));                    // study
  CHECK(us(h100, kAllGather, 4, {512, 64}) == study(2425.2));                          // study
  CHECK(us(h100, kAllReduce, 4, {8, 1}) == study(67.6));                               // study
  CHECK(us(machine_rates("A100-40"), kAllGather, kBytes, {64, 8}) == study(2379.69));  // study
  CHECK(us(h100, kAllGather, kBytes, {1, 1}) == 0);
}

// 7 hops down the chain of a node and 6 between 64 nodes, up and down again; the study has a ring,
// which would take 4.8 ms for four bytes.
TEST_CASE("fabric model: an all-reduce between nodes takes a tree where that has fewer steps") {
  const Rates h100 = machine_rates("H100");
  CHECK(us(h100, kAllReduce, 4, {512, 64}) == study(20 + 2 * (7 * 3.4 + 6 * 14)));
  Rates far = h100;
  far.inside_node.hop_us = 0;
  CHECK(us(far, kAllReduce, 4, {4, 2}) == study(20 + 2 * 14));
}

TEST_CASE("fabric model: the ranks of a group on a node share its links, no faster than inside") {
  const Rates h100 = machine_rates("H100");
  // A rank of each node, as of replicas: one link of 46.25 GB/s.
  CHECK(us(h100, kAllGather, kBytes, {2, 2}) == study(20 + 14 + 202e6 / 46.25e3));
  Rates quick = h100;
  quick.between_nodes.bytes_per_s = 1e12;
  CHECK(us(quick, kAllGather, kBytes, {2, 2}) == study(20 + 14 + 202e6 / 370e3));
}

TEST_CASE("fabric model: measured busbw, on lines of the logarithms") {
  const Rates efa = machine_rates("H100-EFA");
  CHECK(us(efa, kAllGather, kBytes, {8, 1}) == study(1458.93));  // study
  CHECK(us(efa, kAllGather, kBytes, {24, 3}) == study(2830.9));  // study: between 2 and 4 nodes
  CHECK(us(efa, kReduceScatter, kBytes, {24, 3}) == study(2893.28));  // study
  CHECK(us(efa, kAllGather, kBytes, {512, 64}) == study(39080.7));    // study
  // The study's ring and the tree differ by their steps alone.
  CHECK(us(efa, kAllReduce, kBytes, {64, 8}) ==
        study(8582.49 - 2 * (56 * 3.4 + 7 * 14) + 2 * (7 * 3.4 + 3 * 14)));
  // Fewer than were measured: as the fewest. More: as the most.
  CHECK(us(efa, kAllGather, kBytes, {2, 1}) == study(20 + 3.4 + 202e6 / 249.8e3));
  CHECK(us(efa, kAllGather, kBytes, {1024, 128}) ==
        study(20 + 896 * 3.4 + 127 * 14 + kBytes * 1023 / 1024 / 11e3));
  // A rank of each of two nodes has an eighth of the links that were measured.
  CHECK(us(efa, kAllGather, kBytes, {2, 2}) == study(20 + 14 + 202e6 / (184.6e3 / 8)));
  // What was not measured goes by the links.
  CHECK(us(efa, kBroadcast, kBytes, {8, 1}) == study(20 + 7 * 3.4 + kBytes / 370e3));
}

TEST_CASE("fabric model: a percentile of the time is the other one of the bandwidth") {
  const Rates efa = machine_rates("H100-EFA");
  const double steps = 20 + 7 * 3.4, bytes = kBytes * 7 / 8;
  CHECK(us(efa, kAllGather, kBytes, {8, 1}, 95) == study(steps + bytes / 239.552e3));
  CHECK(us(efa, kAllGather, kBytes, {8, 1}, 5) == study(steps + bytes / 264.93e3));
  const double between = us(efa, kAllGather, kBytes, {8, 1}, 72.5);
  CHECK(between == study(steps + bytes / std::sqrt(249.8e3 * 239.552e3)));
  CHECK(us(machine_rates("H100"), kAllGather, kBytes, {8, 1}, 95) == study(999.205));
}

}  // namespace
namespace {

double us(const Rates& rates, const meta::KernelCall& call) {
  return 1e6 * modelled_seconds(rates, call);
}

meta::KernelCall product_call(int64_t m, int64_t n, int64_t k, DType dtype = DType::kBF16) {
  const MatmulExtents extents = {.m = m, .n = n, .k = k, .operand = dtype, .result = dtype};
  return {.kernel = "matmul", .dtype = dtype, .cost = matmul_cost(extents), .product = extents};
}

TEST_CASE("device model: products by their extents") {
  const Rates h100 = machine_rates("H100");
  const auto study = [](double us) { return doctest::Approx(us).epsilon(1e-4); };
  CHECK(us(h100, product_call(8192, 12288, 4096)) == study(1450.91));  // study
  CHECK(us(h100, product_call(4096, 4096, 8192)) == study(504.684));   // study
  CHECK(us(h100, product_call(8192, 50368, 768)) == study(1377.86));   // study
  CHECK(us(h100, product_call(512, 512, 1024)) == study(6.89204));     // study: 64 tiles, 132 SMs
  CHECK(us(h100, product_call(8192, 8192, 64)) == study(73.7499));     // study
  // By hand: 2^31 operations at 636.6 T/s, with each extent's (1 + 256 / 1024); 256 tiles.
  CHECK(us(h100, product_call(1024, 1024, 1024)) == study(2147.483648 / 636.6 * 1.953125 + 2));
  // One token: 2^25 operations, and one row of 256 that half of the rate asks for.
  CHECK(us(h100, product_call(1, 4096, 4096)) ==
        study(33.554432 / 636.6 * 257 * 1.0625 * 1.0625 + 2));
}

TEST_CASE("device model: without extents of half the rate a product has all of it") {
  Rates plain = {.flops_per_s = {{DType::kF32, 1e9}, {DType::kBF16, 4e9}},
                 .memory_bytes_per_s = 1e8,
                 .kernel_us = 5};
  CHECK(us(plain, product_call(100, 10, 10, DType::kF32)) == doctest::Approx(84));  // 8,400 bytes
  plain.memory_bytes_per_s = 1e30;
  CHECK(us(plain, product_call(100, 10, 10, DType::kF32)) == doctest::Approx(20));
  CHECK(us(plain, product_call(100, 10, 10)) == doctest::Approx(5));
  CHECK(us(plain, product_call(100, 10, 10, DType::kF64)) == doctest::Approx(20));  // as f32
  plain.ramp_us = 3;
  CHECK(us(plain, product_call(100, 10, 10)) == doctest::Approx(8));
  plain.power = {.limit_watts = 1, .design_watts = 8};
  CHECK(us(plain, product_call(100, 10, 10)) == doctest::Approx(13));
}

// The calls that a backend describes, of `rows` rows.
struct AttentionCalls {
  AttentionCalls(int64_t rows, int64_t tokens, int64_t heads, int64_t head_dim,
                 bool causal = true) {
    const Shape shape = {rows, tokens, heads * head_dim}, sums = {rows, heads, tokens};
    const auto make = [&](Shape of, DType dtype) { return Tensor::empty(meta, of, dtype); };
    Tensor q = make(shape, DType::kBF16), k = make(shape, DType::kBF16),
           v = make(shape, DType::kBF16);
    Tensor out = make(shape, DType::kBF16), sum = make(sums, DType::kF32);
    Tensor dq = make(shape, DType::kBF16), dk = make(shape, DType::kBF16),
           dv = make(shape, DType::kBF16);
    const auto view = [&](Tensor& tensor) {
      return HeadView{&tensor, heads, head_dim, 0, head_dim};
    };
    const AttentionArgs in = {
        .q = view(q), .k = view(k), .v = view(v), .scale = 1, .causal = causal, .dropout = {}};
    forward = meta::kernel_call(AttentionForwardArgs{in, out, sum});
    Tensor delta = make(sums, DType::kF32);
    backward = meta::kernel_call(
        AttentionBackwardArgs{in, out, sum, out, delta, view(dq), view(dk), view(dv)});
  }
  meta::MetaBackend meta;
  meta::KernelCall forward, backward;
};

TEST_CASE("device model: attention by head size and length") {
  const Rates h100 = machine_rates("H100");
  // The study leaves out the diagonal, which is 1 / T of the half of the square.
  const auto study = [](double us) { return doctest::Approx(us).epsilon(2e-3); };
  const AttentionCalls wide(4, 2048, 32, 128);
  CHECK(us(h100, wide.forward) == study(885.249));   // study
  CHECK(us(h100, wide.backward) == study(2210.12));  // study
  const AttentionCalls narrow(8, 1024, 12, 64);
  CHECK(us(h100, narrow.forward) == study(108.004));  // study
  CHECK(us(h100, narrow.backward) == study(267.01));  // study
  const AttentionCalls all(4, 2048, 32, 128, /*causal=*/false);
  CHECK(us(h100, all.forward) == study(2 * (885.249 - 2) + 2));
  // A machine that has no rate of attention: as products without end, 2^37 operations
  // and the diagonal.
  Rates plain = h100;
  plain.attention = {};
  CHECK(us(plain, wide.forward) == study(137.439 * (1 + 1 / 2048.) / 0.6366 + 2));
}

TEST_CASE("device model: a pass over memory, and its ramp") {
  const Rates h100 = machine_rates("H100");
  const meta::KernelCall pass = {.kernel = "add", .cost = {.bytes = 1'000'000'000}};
  CHECK(us(h100, pass) == doctest::Approx(375.134).epsilon(1e-4));  // study
  CHECK(us(h100, {.kernel = "add", .cost = {}}) == doctest::Approx(2));
}

}  // namespace
}  // namespace fsdp::tools
