// The run without bytes beside the run itself: every category of every rank's ledger, to the byte.
#include "tools/predict/meta_run.h"

#include <ctime>
#include <functional>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "models/names.h"
#include "tests/support/memory_cases.h"
#include "tests/support/tiny_models.h"
#include "tools/predict/memory_report.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kLength = 7;

TEST_CASE("a run without bytes takes what the run takes, to the byte: every pair of options") {
  const auto rows = test::pairwise<test::kMemoryFactors>(test::kMemorySizes, test::go_together);
  CHECK(rows.size() >= 60);  // as families x More have that many pairs
  CHECK(test::kMemorySizes[test::kFamily] == std::ssize(test::tiny_of_every_family(3)));
  for (const test::MemoryLevels& levels : rows) {
    CAPTURE(fmt::format("{}", fmt::join(levels, " ")));
    test::check_memory(test::memory_case(levels));
  }
}

// Nothing is held that grows with the model: a second of the processor, whatever else it does, and
// 100 MiB.
TEST_CASE("large models on many ranks take neither their memory nor long") {
  const struct {
    const char* preset;
    int ranks;
    int64_t length;
  } cases[] = {{"llama2-70b", 512, 4096}, {"transformer_lm_gpt3_175", 128, 2048}};
  for (const auto& c : cases) {
    CAPTURE(c.preset);
    const size_t before = process_memory().peak_resident;
    const std::clock_t start = std::clock();
    PlacedOptions options;
    options.model = models::preset(c.preset);
    options.max_length = c.length;
    options.fsdp.param_dtype = DType::kBF16;
    MetaRun run(options, c.ranks);
    run.load(models::from_scratch(0));
    run.steps(c.ranks, c.length);
    CHECK(std::clock() - start < CLOCKS_PER_SEC);
    CHECK(process_memory().peak_resident - before < size_t{100} << 20);
    // Master, gradient and two moments in f32, of a rank's part; padding is little.
    const auto states = static_cast<double>(16 * options.model.parameter_count() / c.ranks);
    const auto& peak = run.usage().peak;
    const auto held =
        static_cast<double>(peak[static_cast<size_t>(MemoryCategory::kParameterShard)] +
                            peak[static_cast<size_t>(MemoryCategory::kOptimizerState)]);
    CHECK(held == doctest::Approx(states * 12 / 16).epsilon(0.01));
  }
}

TEST_CASE("the moment of the peak, and phases") {
  PlacedOptions options;
  options.model = test::tiny_llama(3);
  options.max_length = kLength;
  MetaRun run(options, 2);
  run.load(models::from_scratch(0));
  run.steps(4, kLength);
  run.evaluate({4, kLength});
  REQUIRE(run.phases().size() == 3);
  CHECK(run.phases()[0].name == "loading");
  CHECK(run.phases()[1].usage.total_peak == run.usage().total_peak);
  CHECK(run.phases()[2].usage.total_peak < run.usage().total_peak);
  size_t sum = 0;
  for (const size_t bytes : run.moment().memory) sum += bytes;
  CHECK(sum == run.usage().total_peak);
  // The loss: a vocabulary of 29 is wider than anything in a block of width 13.
  CHECK(run.moment().phase == "forward");
  CHECK(run.moment().unit == "root");
}

// ---- Predicted time ----

// A kernel takes a microsecond, a collective `collective_us`, whatever their size.
std::shared_ptr<CallRates> even_rates(double collective_us) {
  Rates rates = {.flops_per_s = {{DType::kF32, 1e30}}, .memory_bytes_per_s = 1e30};
  rates.inside_node = {.latency_us = collective_us, .bytes_per_s = 1e30};
  rates.host_copy = {.latency_us = 1, .bytes_per_s = 1e30};
  return std::make_shared<CallRates>(rates, [](const meta::KernelCall&) { return 1e-6; });
}

std::unique_ptr<MetaRun> timed_run(int blocks, int ranks, double collective_us) {
  PlacedOptions options;
  options.model = test::tiny_llama(blocks);
  options.max_length = kLength;
  auto run = std::make_unique<MetaRun>(options, ranks, 0, even_rates(collective_us));
  CHECK(run->step_ms() == 0);
  run->load(models::from_scratch(0));
  run->steps(4, kLength);
  return run;
}

// Microseconds of the calls on a stream.
double busy_us(const MetaRun& run, const std::string& stream) {
  double sum = 0;
  for (const StepCall& call : run.last_step()) {
    if (call.stream == stream) sum += 1e3 * (call.end_ms - call.begin_ms);
  }
  return sum;
}

TEST_CASE("predicted time: on one stream a step is the sum of its calls") {
  const auto run = timed_run(3, 1, 1000);
  double at_ms = 0;
  for (const StepCall& call : run->last_step()) {
    CHECK(call.stream == "compute");
    CHECK(call.begin_ms == doctest::Approx(at_ms));
    at_ms = call.end_ms;
  }
  CHECK(at_ms == doctest::Approx(run->step_ms()));
  CHECK(1e3 * run->step_ms() == doctest::Approx(static_cast<double>(run->last_step().size())));
}

// Calls of the compute stream, in order, by what they are for.
struct ComputeCall {
  std::string unit, phase;
};
bool operator==(const StepCall& call, const ComputeCall& what) {
  return call.unit == what.unit && call.phase == what.phase;
}

// Microseconds between the last call for one thing and the first one for another, if none waited.
double work_between(const MetaRun& run, const ComputeCall& last, const ComputeCall& first) {
  double sum = 0;
  bool counts = last.unit.empty();  // from the beginning
  for (const StepCall& call : run.last_step()) {
    if (call.stream != "compute") continue;
    if (call == first && counts) return sum;
    sum = call == last ? 0 : sum + 1e3 * (call.end_ms - call.begin_ms);
    counts = counts || call == last;
  }
  return -1;
}

// The schedule of comm/fsdp/README.md: gathers and reductions beside the computation.
TEST_CASE("predicted time: of collectives shorter than a block the step waits for three") {
  constexpr double kCollective = 10, kGather = 1 + kCollective;  // after a cast
  const auto run = timed_run(3, 2, kCollective);
  // The root's and block 0's gather, one after the other, when little is to be computed yet.
  const double before = work_between(*run, {}, {"blocks.0", "forward"});
  // Block 2's second gather, into the buffer that its forward has left: beside final norm and head.
  const double head = work_between(*run, {"blocks.2", "forward"}, {"blocks.2", "backward"});
  // The reductions of block 0 and the root: beside the embedding's backward. The flags' sum comes
  // after them on the one link.
  const double tail = work_between(*run, {"blocks.0", "backward"}, {"", "steps"});
  CHECK(before == doctest::Approx(5));
  CHECK(head == doctest::Approx(7));
  CHECK(tail == doctest::Approx(12));
  CHECK(1e3 * run->step_ms() ==
        doctest::Approx(busy_us(*run, "compute") + (2 * kGather - before) + (kGather - head) +
                        (2 * kCollective - (tail - kCollective))));
}

TEST_CASE("predicted time: long collectives hide the computation") {
  for (const int blocks : {3, 6}) {
    CAPTURE(blocks);
    constexpr double kLong = 1e6;  // microseconds: kernels round away
    const auto run = timed_run(blocks, 2, kLong);
    const double gathers = 1 + 2 * blocks;  // one after the other
    const double reductions = 1 + blocks;   // on the same link
    // And the sums of flags, loss and norm.
    CHECK(std::round(1e3 * run->step_ms() / kLong) == gathers + reductions + 3);
  }
}

}  // namespace
}  // namespace fsdp::tools
