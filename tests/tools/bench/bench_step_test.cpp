// The benchmark of a step on a small model: what it reports, on one and several ranks.
#include "tools/bench/bench_step.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

StepBenchOptions options(comm::Strategy strategy) {
  StepBenchOptions options = {.model = test::small_gpt2(),
                              .batch = 6,
                              .length = 7,
                              .fsdp = {.strategy = strategy},
                              .steps = 3,
                              .traced_steps = 2};
  options.model.embedding_dropout = options.model.attention_dropout =
      options.model.residual_dropout = 0;
  return options;
}

}  // namespace

TEST_CASE("bench step: one entry per step and slice, a falling loss, memory") {
  for (const int ranks : {1, 2}) {
    for (const auto strategy : {comm::Strategy::kFullShard, comm::Strategy::kNoShard}) {
      CAPTURE(ranks);
      comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
        RankContext rank{.world = world, .local_ranks = ranks};
        const StepBench bench = bench_step(options(strategy), rank);
        CHECK(bench.step_ms.size() == 3);
        CHECK(bench.slices.size() == 3);
        CHECK(bench.fastest_ms() > 0);
        CHECK(bench.fastest_ms() <= bench.median_ms());
        CHECK(bench.values.loss > 0);
        CHECK(bench.memory.total_peak > 0);
        CHECK(bench.process_ledger_peak == bench.memory.total_peak * static_cast<size_t>(ranks));
        CHECK(bench.traces.size() == 2);
        CHECK(bench.traces[0].size() == bench.traces[1].size());
      });
    }
  }
}

TEST_CASE("bench step: micro-steps compute the same step, in less memory") {
  const auto bench = [](int micro_steps) {
    StepBenchOptions some = options(comm::Strategy::kFullShard);
    some.fsdp.micro_steps = micro_steps;
    some.predict = true;
    StepBench out;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      RankContext rank{.world = world};
      out = bench_step(some, rank);
    });
    return out;
  };
  const StepBench whole = bench(1), parts = bench(3);
  CHECK(parts.values.loss == doctest::Approx(whole.values.loss).epsilon(1e-6));
  CHECK(parts.values.grad_norm == doctest::Approx(whole.values.grad_norm).epsilon(1e-5));
  const auto activations = static_cast<size_t>(MemoryCategory::kActivation);
  CHECK(2 * parts.memory.peak[activations] < whole.memory.peak[activations]);
  // Each kernel of forward and backward runs three times, the optimizer once.
  CHECK(parts.traces[0].size() > 2 * whole.traces[0].size());
  CHECK(parts.predicted->calls.measured > 30);
}

TEST_CASE("bench step: a batch that cannot be dealt out, a sequence that is too long") {
  StepBenchOptions wrong = options(comm::Strategy::kFullShard);
  CHECK_NOTHROW(check(wrong, 3));
  CHECK(test::error_of([&] { check(wrong, 4); }) ==
        "bench step: --batch: expected a multiple of 4 ranks x 1 micro-step, got 6");
  wrong.fsdp.micro_steps = 4;
  CHECK(test::error_of([&] { check(wrong, 1); }) ==
        "bench step: --batch: expected a multiple of 1 rank x 4 micro-steps, got 6");
  wrong.fsdp.micro_steps = 1;
  wrong.length = 10;
  CHECK(test::error_of([&] { check(wrong, 1); }) ==
        "bench step: --seq: expected within [2, 9], got 10");
}

// Wide enough that kernels are all that a step takes. Something else that the machine does makes
// either side slower for a while, never all the time: one quiet moment is enough. The 10 % that the
// manual promises are tested by tests/e2e/predicted_step_slow.sh.
TEST_CASE("bench step: the step predicted from its calls is within a quarter of it") {
  StepBenchOptions predicted = options(comm::Strategy::kFullShard);
  predicted.model.hidden = 256;
  predicted.model.head_dim = 64;
  predicted.model.ffn = 1024;
  predicted.model.max_positions = predicted.length = 64;
  predicted.predict = true;
  predicted.recompute = RecomputeMode::kFull;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    RankContext rank{.world = world};
    constexpr int kAttempts = 8;
    StepBench bench;
    double share = 0;  // of the step
    for (int i = 0; i < kAttempts && (share < 0.75 || share > 1.25); ++i) {
      bench = bench_step(predicted, rank);
      REQUIRE(bench.predicted);
      share = bench.predicted->least_ms / bench.fastest_ms();
    }
    CHECK(share > 0.75);
    CHECK(share < 1.25);
    CHECK(bench.predicted->least_ms <= bench.predicted->median_ms);
    CHECK(bench.predicted->calls.measured > 30);
    CHECK(bench.predicted->calls.estimated == 0);
  });
  CHECK(test::error_of([&] { check(predicted, 2); }) ==
        "bench step: --predict: expected one rank, got 2: links between ranks are not measured");
}

TEST_CASE("bench step: with offload, what each place has is what was predicted") {
  const test::TempFolder folder;
  for (const int ranks : {1, 2}) {
    for (const comm::Offload offload : comm::kOffloads) {
      CAPTURE(ranks);
      CAPTURE(choice_name(offload));
      StepBenchOptions some = options(comm::Strategy::kFullShard);
      some.fsdp.offload = offload;
      some.predict = ranks == 1 && offload == comm::Offload::kAll;
      some.traced_steps = 0;
      comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
        RankContext rank{.world = world, .local_ranks = ranks};
        rank.backend.offload_folder = folder.path();
        const StepBench bench = bench_step(some, rank);
        CHECK(bench.places == bench.predicted_places);
        CHECK(bench.places.device > 0);
        CHECK((bench.places.host > 0) == (offload != comm::Offload::kNone));
        CHECK((bench.places.file > 0) == (offload == comm::Offload::kNvme));
        const size_t in_memory = bench.places.device + bench.places.host;
        if (ranks == 1) CHECK(bench.process_ledger_peak == in_memory);
        if (some.predict) CHECK(bench.predicted->calls.estimated == 0);
      });
    }
  }
}

TEST_CASE("bench step: median of an even number of steps") {
  const StepBench bench = {.step_ms = {4, 1, 3, 2}};
  CHECK(bench.median_ms() == 2.5);
  CHECK(bench.fastest_ms() == 1);
  CHECK(bench.tokens_per_s({.batch = 6, .length = 7}) == 42000);
}
namespace {

TraceEvent event(const char* lane, const char* name, int64_t begin_ms, int64_t end_ms) {
  return {.name = name,
          .scope = "",
          .lane = lane,
          .enqueued_ns = 0,
          .begin_ns = begin_ms * 1'000'000,
          .end_ns = end_ms * 1'000'000};
}

TEST_CASE("step figures: the fastest step against the highest rates, medians against medians") {
  const auto light = [](double rate) {
    return SpeedOfLight{
        .flops_per_s = rate, .copy_bytes_per_s = 2 * rate, .flops = 10, .pass_bytes = 20};
  };
  const StepBench bench = {.step_ms = {50, 40, 80},
                           .slices = {light(1000), light(500), light(800)}};
  const StepFigures f = figures_of(bench, {.batch = 2, .length = 10});
  CHECK(f.fastest_ms == 40);
  CHECK(f.median_ms == 50);
  CHECK(f.tokens_per_s == doctest::Approx(500));
  CHECK(f.percent == doctest::Approx(100 * 20.0 / 40));         // 10 ms of products, 10 of passes
  CHECK(f.median_percent == doctest::Approx(100 * 25.0 / 50));  // 12.5 and 12.5
}

TEST_CASE("step figures: kernels by stream, each of its fastest step, with its work") {
  const StepBench bench = {
      .predicted = StepBench::Predicted{.kernels_ms = {{"matmul", 3.5}, {"copy", 1}}},
      .traces = {{event("compute", "matmul", 0, 4), event("compute", "gelu", 4, 7),
                  event("compute", "matmul", 7, 8), event("gather", "copy", 0, 9)},
                 {event("compute", "matmul", 0, 3), event("compute", "gelu", 3, 9),
                  event("compute", "matmul", 9, 10), event("gather", "copy", 0, 8)}}};
  const StepCost cost = {.products = {{{.m = 2, .n = 3, .k = 5}, 7}},
                         .passes = {{"gelu", {.bytes = 33}, 1}, {"copy", {.bytes = 44}, 1}},
                         .attention = {{"attention_forward", {.flops = 70}, 1}}};
  const KernelTotals totals = kernel_totals(bench, cost);
  REQUIRE(totals.size() == 3);
  const KernelTotal& matmul = totals.at({"compute", "matmul"});
  CHECK(matmul.ms == doctest::Approx(4));
  CHECK(matmul.calls == 2);
  CHECK(matmul.work == 7 * 2 * 2 * 3 * 5);
  CHECK(matmul.predicted_ms == 3.5);
  const KernelTotal& gelu = totals.at({"compute", "gelu"});
  CHECK(gelu.ms == doctest::Approx(3));
  CHECK(gelu.work == 33);
  CHECK_FALSE(gelu.predicted_ms.has_value());
  const KernelTotal& copy = totals.at({"gather", "copy"});  // not on the compute stream
  CHECK(copy.work == 0);
  CHECK_FALSE(copy.predicted_ms.has_value());
}

}  // namespace
}  // namespace fsdp::tools
