// Where a gradient average divides: the published vectors, and that the parts make up the divisor.
#include <doctest/doctest.h>

#include "comm/fsdp/options.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

void check(const FsdpOptions& options, GroupSizes groups, const GradientDivision& expected) {
  CAPTURE(name_of(options.reduce_dtype));
  CAPTURE(groups.shards);
  CAPTURE(groups.replicas);
  CAPTURE(options.divide_factor.value_or(0));
  const GradientDivision got = gradient_division(options, groups);
  CHECK(got.before == expected.before);
  CHECK(got.after == expected.after);
  CHECK(got.op == expected.op);
  CHECK(got.replica_op == expected.replica_op);
}

}  // namespace

TEST_CASE("f16 and f64 split the divisor around the sum as PyTorch FSDP2 does") {
  struct Vector {
    int ranks;
    double before, after;
  };
  // Before and after for 1, 2, 3, ... ranks, from _get_gradient_divide_factors.
  for (const Vector& v : {Vector{1, 1, 1},
                          {2, 2, 1},
                          {3, 2, 1.5},
                          {4, 2, 2},
                          {6, 4, 1.5},
                          {8, 4, 2},
                          {12, 4, 3},
                          {16, 4, 4},
                          {32, 8, 4},
                          {64, 8, 8},
                          {128, 16, 8},
                          {512, 32, 16}}) {
    const GradientDivision expected = {.before = v.before, .after = v.after};
    for (const DType dtype : {DType::kF16, DType::kF64}) {
      for (const bool force_sum : {false, true}) {
        check({.reduce_dtype = dtype, .force_sum = force_sum}, {.shards = v.ranks}, expected);
      }
      // A factor takes the place of the number of ranks.
      check({.reduce_dtype = dtype, .divide_factor = v.ranks}, {.shards = 7}, expected);
    }
    // FSDP1 splits in every dtype, over shards and replicas.
    check({.reduce_dtype = DType::kF32, .split_division = true}, {.replicas = v.ranks}, expected);
  }
}

TEST_CASE("f32 and bf16: averages, terms divided by a factor, or sums divided after") {
  constexpr ReduceOp kAverage = ReduceOp::kAverage;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({.reduce_dtype = dtype}, {.shards = 3}, {.op = kAverage, .replica_op = kAverage});
    check({.reduce_dtype = dtype}, {.shards = 2, .replicas = 2},
          {.op = kAverage, .replica_op = kAverage});
    // The number of shards as the factor: an average over these, and a sum over the replicas.
    check({.reduce_dtype = dtype, .divide_factor = 3}, {.shards = 3, .replicas = 2},
          {.op = kAverage});
    check({.reduce_dtype = dtype, .divide_factor = 6}, {.shards = 3, .replicas = 2}, {.before = 6});
    check({.reduce_dtype = dtype, .divide_factor = 2.5}, {.shards = 3}, {.before = 2.5});
    check({.reduce_dtype = dtype, .force_sum = true}, {.shards = 3, .replicas = 2}, {.after = 6});
    check({.reduce_dtype = dtype, .divide_factor = 2.5, .force_sum = true}, {.shards = 3},
          {.after = 2.5});
  }
}

TEST_CASE("a factor that is not positive is refused") {
  for (const double factor : {0.0, -2.0}) {
    CHECK(contains(error_of([&] { gradient_division({.divide_factor = factor}, {.shards = 2}); }),
                   "divide factor: expected a positive number"));
  }
}
