// What a step consists of: GPT-2 124M's totals by hand, and for small models of both families
// against the kernels that a real step runs.
#include "tools/predict/step_cost.h"

#include <map>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/sharded_run.h"
#include "tests/support/tiny_models.h"
#include "tools/bench/bench_step.h"

namespace fsdp::tools {
namespace {

int64_t bytes_of(const StepCost& cost, const std::string& kernel) {
  for (const StepPass& pass : cost.passes) {
    if (pass.kernel == kernel) return pass.cost.bytes;
  }
  return -1;
}

constexpr int64_t kParameters = 124439808;  // of GPT-2 124M

StepBenchOptions gpt2(int64_t length, DType dtype) {
  return {.model = models::preset("gpt2-124m"), .batch = 4, .length = length, .dtype = dtype};
}

// Calls by kernel of the compute stream.
std::map<std::string, int64_t> kernels_of_a_step(const StepBenchOptions& options) {
  std::map<std::string, int64_t> calls;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    RankContext rank{.world = world};
    const auto bench = bench_step(options, rank);
    for (const TraceEvent& event : bench.traces[0]) {
      if (event.lane == "compute") ++calls[event.name];
    }
  });
  return calls;
}

}  // namespace

TEST_CASE("step cost of GPT-2 124M: products") {
  for (const int64_t length : {64, 256}) {
    CAPTURE(length);
    const int64_t rows = 4 * length, C = 768, V = 50257;
    // 12 C^2 weights a block and the head; forward and twice that backward; 2 FLOPs each.
    const int64_t products = 6 * rows * (12 * 12 * C * C + V * C);
    const StepCost cost = step_cost(gpt2(length, DType::kF32), 1);
    CHECK(cost.product_flops() == products);
    for (const StepProduct& product : cost.products) {
      const MatmulExtents& e = product.extents;
      const bool forward = e.n == V, head = forward || e.m == V || e.k == V;
      CHECK(product.extents.row_c == (head && forward ? 50304 : 0));
      CHECK(product.extents.row_a == (head && !forward ? 50304 : 0));
    }
    // 12 layers, 4 x 12 heads, 7 products over the causal pairs.
    CHECK(cost.attention_flops() == 12 * 48 * 7 * 2 * (length * (length + 1) / 2) * 64);
  }
}

TEST_CASE("step cost of GPT-2 124M: bytes of the passes") {
  const int64_t rows = 256, x = rows * 768, V = 50257;  // x: elements of an activation
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CAPTURE(name_of(dtype));
    const int64_t s = dtype == DType::kF32 ? 4 : 2;
    const StepCost cost = step_cost(gpt2(64, dtype), 1);
    CHECK(bytes_of(cost, "adamw") == kParameters * (dtype == DType::kF32 ? 28 : 30));
    CHECK(bytes_of(cost, "power_sum") == kParameters * 4);
    CHECK(bytes_of(cost, "add") == 12 * 3 * x * s + 2 * 12);  // and the loss over micro-steps
    CHECK(bytes_of(cost, "activation_forward") == 12 * 2 * 4 * x * s);
    CHECK(bytes_of(cost, "activation_backward") == 12 * 3 * 4 * x * s);
    CHECK(bytes_of(cost, "layer_norm_forward") == (13 * 2 + 12 * 4) * x * s);
    CHECK(bytes_of(cost, "layer_norm_backward") == (24 * 4 + 3) * x * s);
    CHECK(bytes_of(cost, "sum_rows") == 12 * (3 + 1 + 1) * x * s);
    CHECK(bytes_of(cost, "cross_entropy") == rows * V * (4 + s));
    CHECK(bytes_of(cost, "embedding_forward") == 2 * x * s + 64 * 768 * s);
    CHECK(bytes_of(cost, "embedding_backward") == x * s + 2 * x * 4);
    CHECK(bytes_of(cost, "position_backward") == x * s + 1024 * 768 * 4);
    int64_t sum = 0;
    size_t scalars = 0;
    for (const StepPass& pass : cost.passes) {
      sum += pass.cost.bytes;
      if (pass.cost.bytes < 100'000) ++scalars;
    }
    CHECK(cost.pass_bytes() == sum);
    CHECK(cost.passes.size() - scalars == 12);
  }
}

TEST_CASE("step cost: the optimizer's part of a shard") {
  const StepCost cost = step_cost(gpt2(64, DType::kBF16), 2);  // and then no copy is resident
  CHECK(bytes_of(cost, "adamw") == kParameters / 2 * 28);
  CHECK(bytes_of(cost, "power_sum") == kParameters / 2 * 4);
}

TEST_CASE("step cost counts the kernels that a step runs") {
  for (models::ModelConfig model :
       {test::small_gpt2(), test::small_llama(), test::tiny_bloom(), test::tiny_neox()}) {
    CAPTURE(model.family);
    model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0;
    // 40 x 2 rows of the head: more than one chunk of 64, and a last one of 16.
    for (const int64_t batch : {3, 40}) {
      CAPTURE(batch);
      const StepBenchOptions options = {
          .model = model, .batch = batch, .length = 2, .steps = 1, .traced_steps = 1};
      const StepCost cost = step_cost(options, 1);
      std::map<std::string, int64_t> expected;
      for (const StepProduct& product : cost.products) expected["matmul"] += product.count;
      for (const StepPass& pass : cost.passes) expected[pass.kernel] = pass.count;
      for (const StepPass& pass : cost.attention) expected[pass.kernel] = pass.count;
      std::map<std::string, int64_t> calls = kernels_of_a_step(options);
      for (const auto& [kernel, count] : expected) {
        CAPTURE(kernel);
        CHECK(calls[kernel] == count);
        calls.erase(kernel);
      }
      // What is left handles scalars, tokens and labels.
      for (const auto& [kernel, count] : calls) {
        CAPTURE(kernel);
        const bool small = kernel == "advance_steps" || kernel == "clip_coefficient" ||
                           kernel == "cast" || kernel == "copy" || kernel == "copy_from_host" ||
                           kernel == "fill_zero" || kernel == "arrived" || kernel == "divide";
        CHECK(small);
      }
    }
  }
}

}  // namespace fsdp::tools
