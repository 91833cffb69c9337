// The optimizers' kernels against their formulas, element by element: by segment, with absent
// parameters and gaps, on any number of threads; values of 16 bits against a wide step. PyTorch's
// recorded steps: tests/optim/optimizer_test.cpp.
#include "tests/support/shard_case.h"

namespace fsdp::test {
namespace {

constexpr int64_t kSize = 100003;  // several grains, cut by the segments

// Unordered, with a gap (padding) before and after the last.
const std::vector<ShardSegment> kSegments = {{40000, 40001, true, 2},
                                             {0, 33000, true, 0},
                                             {33000, 40000, true, 1},
                                             {40010, kSize - 2, false, 2}};

std::vector<Values> as_list(const ShardValues& values) {
  std::vector<Values> list = values.states;
  list.insert(list.begin(), {values.master, values.copy, values.counts});
  return list;
}

TEST_CASE("optimizer kernels take the steps of their formulas, on any number of threads") {
  const ShardCase cases[] = {{DType::kF64, DType::kF64, DType::kF64, kSize, 0, kSegments},
                             {DType::kF32, DType::kF32, std::nullopt, kSize, 0, kSegments},
                             {DType::kF32, DType::kBF16, DType::kBF16, kSize, 0, kSegments},
                             {DType::kF32, DType::kF16, DType::kF16, kSize, 1, kSegments}};
  for (const ShardRule& rule : shard_rules()) {
    for (const ShardCase& c : cases) {
      CAPTURE(rule.name);
      CAPTURE(name_of(c.grad));
      const auto out =
          on_any_threads([&](Backend& backend) { return as_list(three_steps(backend, c, rule)); });
      ShardValues formula = three_steps_by_formula(c, rule);
      CHECK(largest_error(out[0], formula.master) < tolerance(c.master));
      CHECK(out[2] == formula.counts);
      for (size_t i = 0; i < formula.states.size(); ++i) {
        CHECK(largest_error(out[3 + i], formula.states[i]) < tolerance(c.master));
      }
      if (c.copy) {  // the master rounded; what no segment has is as it was
        const Values copy = rounded(out[0], *c.copy), first = first_values(c, rule).copy;
        Values wanted = first;
        for (const ShardSegment& s : kSegments) {
          std::copy(copy.begin() + s.begin, copy.begin() + s.end, wanted.begin() + s.begin);
        }
        CHECK((out[1] == wanted));
      }
    }
  }
}

// Runs of eight, and elements alone at both ends of segments.
TEST_CASE("optimizer kernels have the bits of their formulas in f32, each fma written out") {
  const ShardCase c = {DType::kF32, DType::kF32, std::nullopt, kSize, 1, kSegments};
  for (ShardRule rule : shard_rules()) {
    CAPTURE(rule.name);
    cpu::CpuBackend backend;
    const ShardValues kernel = three_steps(backend, c, rule);
    rule.formula = rule.in_f32;
    CHECK((kernel == three_steps_by_formula(c, rule)));
  }
}

TEST_CASE("optimizer kernels: a step of 16 bits is a wide step, rounded; on any threads") {
  for (const ShardRule& rule : shard_rules()) {
    for (const ShardCase& c : narrow_cases(kSize)) {
      CAPTURE(rule.name);
      CAPTURE(name_of(c.master));
      CAPTURE(name_of(c.state_dtype()));
      cpu::CpuBackend backend;
      const std::vector<Values> in_parts = as_list(three_steps(backend, c, rule, true));
      const auto out =
          on_any_threads([&](Backend& on) { return as_list(three_steps(on, c, rule)); });
      CHECK((out == in_parts));
    }
  }
}

TEST_CASE("optimizer kernels: a skipped step changes nothing") {
  cpu::CpuBackend backend;
  for (const ShardRule& rule : shard_rules()) {
    CAPTURE(rule.name);
    const ShardCase skipped = {.master = DType::kF64,
                               .copy = DType::kBF16,
                               .n = 300,
                               .segments = {{0, 200, true, 0}, {200, 300, true, 1}},
                               .skip = 1};
    CHECK((three_steps(backend, skipped, rule) == first_values(skipped, rule)));
  }
}

}  // namespace
}  // namespace fsdp::test
