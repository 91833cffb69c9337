// sum_rows, power_sum and clip_coefficient against sums in double; the same bits on any number of
// threads.
#include <limits>

#include "core/layer_args.h"
#include "core/shard_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::cpu {
namespace {

using test::kFloatingTypes;
using test::random_tensor;
using test::unit_roundoff;
using test::with_threads;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_CASE("sum_rows") {
  CpuBackend one, three(with_threads(3));
  for (const DType in : kFloatingTypes) {
    for (const DType out_type : kFloatingTypes) {
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                          {3, 7},
                                          {33, 65},
                                          {300, 5},
                                          {4100, 3},
                                          {9, 5000},
                                          {0, 4}}) {
        for (const bool accumulate : {false, true}) {
          const auto run = [&, rows = rows, columns = columns](CpuBackend& backend) {
            const Tensor x = random_tensor(backend, {rows, columns}, in, 1);
            Tensor out = random_tensor(backend, {columns}, out_type, 2);
            const std::vector<double> values = x.to_doubles(), before = out.to_doubles();
            backend.run(backend.compute_stream(),
                        SumRowsArgs{.x = x, .out = out, .accumulate = accumulate});
            const std::vector<double> got = out.to_doubles();
            Tensor again = test::make_tensor(backend, {columns}, out_type, before);
            backend.run(backend.compute_stream(),
                        SumRowsArgs{.x = test::padded_tensor(backend, columns, 3, in, values),
                                    .out = again,
                                    .accumulate = accumulate});
            CHECK(again.to_doubles() == got);  // of padded rows
            int wrong = 0;
            for (size_t j = 0; j < got.size(); ++j) {
              double sum = accumulate ? before[j] : 0, magnitude = std::abs(sum);
              for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
                sum += values[i * got.size() + j];
                magnitude += std::abs(values[i * got.size() + j]);
              }
              const double limit = 8 * unit_roundoff(accumulation_dtype(in)) * magnitude +
                                   1.01 * unit_roundoff(out_type) * std::abs(sum);
              wrong += !(std::abs(got[j] - sum) <= limit + 1e-7 * unit_roundoff(out_type));
            }
            CHECK(wrong == 0);
            return got;
          };
          CHECK(run(one) == run(three));
        }
      }
    }
  }
}

double power_sum(CpuBackend& backend, const Tensor& x,
                 const std::vector<std::pair<int64_t, int64_t>>& spans, double power,
                 const double* before = nullptr) {
  Tensor out = Tensor::from_host<double>(backend, {}, {before ? *before : 77.0});
  backend.run(
      backend.compute_stream(),
      PowerSumArgs{
          .x = x, .spans = spans, .power = power, .out = out, .accumulate = before != nullptr});
  return out.item();
}

TEST_CASE("power_sum over spans, of any power") {
  CpuBackend one, three(with_threads(3));
  const std::vector<std::pair<int64_t, int64_t>> spans = {
      {3, 4}, {10, 10}, {11, 1200}, {1200, 200000}, {200003, 262144}};
  for (const DType dtype : kFloatingTypes) {
    const Tensor x = random_tensor(one, {262144}, dtype, 1, -2, 2);
    const Tensor same = random_tensor(three, {262144}, dtype, 1, -2, 2);
    const std::vector<double> values = x.to_doubles();
    for (const double power : {1.0, 2.0, 3.0, kInfinity}) {
      double expected = 0;
      for (const auto& [begin, end] : spans) {
        for (int64_t i = begin; i < end; ++i) {
          const double value = std::abs(values[static_cast<size_t>(i)]);
          expected =
              std::isinf(power) ? std::max(expected, value) : expected + std::pow(value, power);
        }
      }
      const double got = power_sum(one, x, spans, power);
      CHECK(got == doctest::Approx(expected).epsilon(1e-6));
      CHECK(power_sum(three, same, spans, power) == got);
      const double before = 1.0;
      CHECK(power_sum(one, x, spans, power, &before) ==
            doctest::Approx(std::isinf(power) ? std::max(before, got) : before + got));
    }
    CHECK(power_sum(one, x, {}, 2) == 0);
  }
}

TEST_CASE("power_sum shows what is not finite, wherever it is") {
  CpuBackend backend;
  for (const int64_t where : {0, 5, 1023, 2047, 4098}) {
    for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
      std::vector<double> values = test::random_values(4099, 1);
      values[static_cast<size_t>(where)] = bad;
      const Tensor x = test::make_tensor(backend, {4099}, DType::kF32, values);
      for (const double power : {1.0, 2.0, kInfinity}) {
        CHECK_FALSE(std::isfinite(power_sum(backend, x, {{0, 4099}}, power)));
      }
      CHECK(std::isfinite(power_sum(backend, x, {{0, where}, {where + 1, 4099}}, 2)));
    }
  }
}

TEST_CASE("clip_coefficient") {
  CpuBackend backend;
  struct Expected {
    double sum, power, max_norm, scale, norm, coefficient;
    int skip;
    int overflow = 0;
    double skip_above = kInfinity;
  };
  const Expected cases[] = {
      {25, 2, 1, 1, 5, 1 / (5 + 1e-6), 0},
      {25, 2, 10, 1, 5, 1, 0},  // below the limit: untouched
      {25, 2, 0, 1, 5, 1, 0},   // no limit
      {25, 2, 1, 2, 2.5, 0.5 / (2.5 + 1e-6), 0},
      {25, 2, 0, 8, 0.625, 0.125, 0},
      {8, 3, 1, 1, 2, 1 / (2 + 1e-6), 0},
      {7, kInfinity, 1, 0.5, 14, 2 / (14 + 1e-6), 0},
      {0, 2, 1, 1, 0, 1, 0},
      {kInfinity, 2, 1, 1, kInfinity, 0, 1},
      {25, 2, 1, 2, 2.5, 0.5 / (2.5 + 1e-6), 0, 0, 2.5},
      {25, 2, 1, 2, 2.5, 0.5 / (2.5 + 1e-6), kSpike, 0, 2.4},
      {25, 2, 10, 1, 5, 1, kNotFinite, 1, 4},
      {25, 2, 10, 1, 5, 1, 1, 1},  // the sum is finite, the gradients of some rank were not
  };
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Expected& e : cases) {
      const Tensor sum = Tensor::from_host<double>(backend, {}, {e.sum});
      Tensor norm = Tensor::empty(backend, {}, DType::kF64);
      Tensor coefficient = Tensor::empty(backend, {}, dtype);
      Tensor skip = Tensor::empty(backend, {}, DType::kI32);
      const Tensor scale = Tensor::from_host<float>(backend, {}, {static_cast<float>(e.scale)});
      const Tensor overflow = Tensor::from_host<int32_t>(backend, {}, {e.overflow});
      backend.run(backend.compute_stream(), ClipArgs{.power_sum = sum,
                                                     .power = e.power,
                                                     .max_norm = e.max_norm,
                                                     .skip_above = e.skip_above,
                                                     .loss_scale = &scale,
                                                     .overflow = &overflow,
                                                     .norm = norm,
                                                     .coefficient = coefficient,
                                                     .skip = skip});
      if (std::isfinite(e.norm)) {
        CHECK(norm.item() == doctest::Approx(e.norm).epsilon(1e-14));
      } else {
        CHECK_FALSE(std::isfinite(norm.item()));
      }
      CHECK(coefficient.item() == doctest::Approx(e.coefficient).epsilon(1e-7));
      CHECK(skip.item() == e.skip);
    }
  }
}

}  // namespace
TEST_CASE("power_sum by blocks: every block in its place, the others untouched") {
  const int64_t n = 5000;
  const std::vector<double> values = test::random_values(n, 9, -2, 2);
  const std::vector<std::pair<int64_t, int64_t>> spans = {{0, 1500}, {2048, 5000}};
  const std::vector<int64_t> first_blocks = {3, 0};
  for (const double power : {1.0, 2.0, 3.0, kInfinity}) {
    for (const int threads : {1, 3}) {
      CpuBackend backend({.threads = threads});
      const Tensor x = test::make_tensor(backend, {n}, DType::kF64, values);
      Tensor out = Tensor::from_host<double>(backend, {6}, std::vector<double>(6, -7.0));
      backend.run(
          backend.compute_stream(),
          PowerSumArgs{
              .x = x, .spans = spans, .power = power, .out = out, .first_blocks = &first_blocks});
      const auto block = [&](int64_t begin, int64_t end) {
        double sum = 0;
        for (int64_t i = begin; i < end; ++i) {
          const double a = std::abs(values[static_cast<size_t>(i)]);
          sum = std::isinf(power) ? std::max(sum, a) : sum + std::pow(a, power);
        }
        return sum;
      };
      const std::vector<double> expected = {block(2048, 3072), block(3072, 4096), block(4096, 5000),
                                            block(0, 1024),    block(1024, 1500), -7};
      const std::vector<double> got = out.to_doubles();
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-12));
      }
    }
  }
}

}  // namespace fsdp::cpu
