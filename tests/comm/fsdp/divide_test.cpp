// Where a gradient average divides: the published vectors, and that the parts make up the divisor.
#include "comm/fsdp/divide.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

TEST_CASE("f16 splits the divisor around the sum as PyTorch FSDP2 does") {
  struct Vector {
    int ranks;
    double before, after;
  };
  // Before and after for 1, 2, 3, ... ranks, from _get_gradient_divide_factors.
  for (const Vector& v : {Vector{1, 1, 1}, {2, 2, 1}, {3, 2, 1.5}, {4, 2, 2}, {6, 4, 1.5},
                          {8, 4, 2}, {12, 4, 3}, {16, 4, 4}, {32, 8, 4}, {64, 8, 8},
                          {128, 16, 8}, {512, 32, 16}}) {
    CAPTURE(v.ranks);
    for (const bool force_sum : {false, true}) {
      const GradientDivision d = gradient_division(DType::kF16, v.ranks, {}, force_sum);
      CHECK(d.before == v.before);
      CHECK(d.after == v.after);
      CHECK(d.op == ReduceOp::kSum);
    }
    // A factor takes the place of the number of ranks.
    const GradientDivision d = gradient_division(DType::kF16, 7, v.ranks, false);
    CHECK(d.before == v.before);
    CHECK(d.after == v.after);
  }
}

TEST_CASE("wider types average in the collective, or sum and divide the smaller result") {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    CAPTURE(name_of(dtype));
    for (const int ranks : {1, 2, 3, 512}) {
      const GradientDivision plain = gradient_division(dtype, ranks, {}, false);
      CHECK(plain.before == 1);
      CHECK(plain.after == 1);
      CHECK(plain.op == ReduceOp::kAverage);
      const GradientDivision same = gradient_division(dtype, ranks, ranks, false);
      CHECK(same.op == ReduceOp::kAverage);
      const GradientDivision sum = gradient_division(dtype, ranks, {}, true);
      CHECK(sum.before == 1);
      CHECK(sum.after == ranks);
      CHECK(sum.op == ReduceOp::kSum);
      const GradientDivision factor = gradient_division(dtype, ranks, 2.5, false);
      CHECK(factor.before == 1);
      CHECK(factor.after == 2.5);
      CHECK(factor.op == ReduceOp::kSum);
    }
  }
}

TEST_CASE("a factor that is not positive is refused") {
  for (const double factor : {0.0, -2.0}) {
    CHECK(contains(error_of([&] { gradient_division(DType::kF32, 2, factor, false); }),
                   "divide factor: expected a positive number"));
  }
}
