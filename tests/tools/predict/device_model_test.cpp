// Kernels by their shapes. Numbers with a comment "study": computed by the program with which the
// constants were fitted, another implementation of the same formulas.
#include "tools/predict/device_model.h"

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "kernels/meta/meta_backend.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
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
