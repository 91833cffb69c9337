// Matrix products against a plain sum in double: all dtype pairs, transposes, bias, accumulation,
// ugly shapes, one and more threads, oneDNN and Eigen.
#include "kernels/cpu/matmul.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/tensors.h"

namespace fsdp::cpu {
namespace {

using test::make_tensor;
using test::padded_tensor;
using test::random_values;
using test::rounded;
using test::unit_roundoff;
using test::without_padding;

struct Case {
  int64_t m, n, k;
  DType operand = DType::kF32, result = DType::kF32;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false, bias = false;

  std::string str() const {
    return fmt::format("{} x {} x {} {} -> {}{}{}{}{}", m, n, k, name_of(operand), name_of(result),
                       transpose_a ? " a^T" : "", transpose_b ? " b^T" : "",
                       accumulate ? " accumulate" : "", bias ? " bias" : "");
  }
};

// Inputs as stored, and the exact result with the sum of absolute terms beside it.
struct Problem {
  std::vector<double> a, b, bias, c, expected, magnitude;
};

Problem make_problem(const Case& t) {
  Problem p;
  p.a = rounded(random_values(t.m * t.k, 1), t.operand);
  p.b = rounded(random_values(t.k * t.n, 2), t.operand);
  p.bias = rounded(random_values(t.n, 3), t.operand);
  p.c = rounded(random_values(t.m * t.n, 4), t.result);
  for (int64_t i = 0; i < t.m; ++i) {
    for (int64_t j = 0; j < t.n; ++j) {
      double sum = t.accumulate ? p.c[static_cast<size_t>(i * t.n + j)]
                   : t.bias     ? p.bias[static_cast<size_t>(j)]
                                : 0;
      double magnitude = std::abs(sum);
      for (int64_t l = 0; l < t.k; ++l) {
        const double x = p.a[static_cast<size_t>(t.transpose_a ? l * t.m + i : i * t.k + l)];
        const double y = p.b[static_cast<size_t>(t.transpose_b ? j * t.k + l : l * t.n + j)];
        sum += x * y;
        magnitude += std::abs(x * y);
      }
      p.expected.push_back(sum);
      p.magnitude.push_back(magnitude);
    }
  }
  return p;
}

// Rows of a and c are padded by so many elements that are not numbers.
struct Padding {
  int64_t a = 0, c = 0;
};

std::vector<double> run(CpuBackend& backend, const Case& t, const Problem& p,
                        const Padding& padding = {}) {
  const Tensor a =
      padding.a
          ? padded_tensor(backend, t.transpose_a ? t.m : t.k, padding.a, t.operand, p.a)
          : make_tensor(backend, t.transpose_a ? Shape{t.k, t.m} : Shape{t.m, t.k}, t.operand, p.a);
  const Tensor b =
      make_tensor(backend, t.transpose_b ? Shape{t.n, t.k} : Shape{t.k, t.n}, t.operand, p.b);
  const Tensor bias = make_tensor(backend, {t.n}, t.operand, p.bias);
  Tensor c = padding.c ? padded_tensor(backend, t.n, padding.c, t.result, p.c)
                       : make_tensor(backend, {t.m, t.n}, t.result, p.c);
  backend.run(backend.compute_stream(), MatmulArgs{.a = a,
                                                   .b = b,
                                                   .c = c,
                                                   .transpose_a = t.transpose_a,
                                                   .transpose_b = t.transpose_b,
                                                   .accumulate = t.accumulate,
                                                   .bias = t.bias ? &bias : nullptr});
  return padding.c ? without_padding(c, t.n) : c.to_doubles();
}

// Rounding of the sum grows like the square root of its length; one more rounding when it is
// stored.
void check_close(const Case& t, const Problem& p, const std::vector<double>& got) {
  const double sum_error =
      unit_roundoff(accumulation_dtype(t.operand)) * (4 + 2 * std::sqrt(static_cast<double>(t.k)));
  int wrong = 0;
  REQUIRE(got.size() == p.expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double limit =
        sum_error * p.magnitude[i] + 1.01 * unit_roundoff(t.result) * std::abs(p.expected[i]);
    wrong += !(std::abs(got[i] - p.expected[i]) <= limit + 1e-7 * unit_roundoff(t.result));
  }
  CHECK_MESSAGE(wrong == 0, t.str());
}

const std::vector<std::pair<DType, DType>> kPairs = {
    {DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32},
    {DType::kF16, DType::kF16}, {DType::kF16, DType::kF32},   {DType::kF64, DType::kF64}};

void check_variants(CpuBackend& backend, int64_t m, int64_t n, int64_t k) {
  for (const auto& [operand, result] : kPairs) {
    for (int bits = 0; bits < 16; ++bits) {
      const Case t{m,
                   n,
                   k,
                   operand,
                   result,
                   (bits & 1) != 0,
                   (bits & 2) != 0,
                   (bits & 4) != 0,
                   (bits & 8) != 0};
      if (t.accumulate && t.bias) continue;
      const Problem p = make_problem(t);
      check_close(t, p, run(backend, t, p));
    }
  }
}

TEST_CASE("every dtype, transpose, bias and accumulation on ugly shapes") {
  const int64_t shapes[][3] = {{1, 1, 1},   {1, 7, 3},    {5, 1, 9},    {3, 2, 1},   {17, 33, 65},
                               {31, 63, 7}, {64, 48, 32}, {13, 129, 5}, {100, 1, 1}, {1, 515, 40}};
  CpuOptions two;
  two.threads = 2;
  CpuBackend one_thread, two_threads(two);
  for (const auto& [m, n, k] : shapes) {
    check_variants(one_thread, m, n, k);
    check_variants(two_threads, m, n, k);
  }
}

// Past the block and tile sizes of oneDNN (512 columns), Eigen (256 x 512) and the converter
// (512 x 512 x 1024), and past the size where the team wakes.
TEST_CASE("shapes beyond one block, on several threads") {
  CpuOptions options;
  options.threads = 3;
  CpuBackend backend(options);
  for (const auto& [operand, result] : kPairs) {
    for (const Case& t : {Case{130, 1030, 70, operand, result, false, false, true},
                          Case{519, 35, 1031, operand, result, true, false, true},
                          Case{33, 530, 1040, operand, result, false, true, false, true},
                          Case{20, 513, 1025, operand, result, true, true},
                          Case{600, 70, 80, operand, result, false, false, false, true}}) {
      const Problem p = make_problem(t);
      check_close(t, p, run(backend, t, p));
    }
  }
}

// Where there are only AVX2's vectors oneDNN reads operands in place: crowded rows of b go through
// copies of 1,024 by 1,024, and a wide transposed b through blocks of 512.
TEST_CASE("f32 in blocks of b, copied or not") {
  CpuOptions two, tiles;
  two.threads = 2;
  tiles.threads = 2;
  tiles.fixed_tiles = true;
  CpuBackend backend(two), in_tiles(tiles);
  constexpr DType kF = DType::kF32;
  for (const Case& t : {Case{33, 1536, 1100, kF, kF, false, false, true},
                        Case{40, 512, 1030, kF, kF, true, false, false, true},
                        Case{257, 1030, 40, kF, kF, false, false, false, true},
                        Case{36, 1040, 50, kF, kF, false, true, true}}) {
    const Problem p = make_problem(t);
    check_close(t, p, run(backend, t, p));
    check_close(t, p, run(in_tiles, t, p));
  }
}

TEST_CASE("rows of a and c may be padded: what lies behind them is not read") {
  CpuOptions options;
  options.threads = 2;
  CpuBackend backend(options);
  for (const auto& [operand, result] : kPairs) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{3, 7, 5}, {17, 33, 65}, {40, 530, 70}, {70, 33, 1040}}) {
      for (int bits = 0; bits < 16; ++bits) {
        const Case t{m,
                     n,
                     k,
                     operand,
                     result,
                     (bits & 1) != 0,
                     (bits & 2) != 0,
                     (bits & 4) != 0,
                     (bits & 8) != 0};
        if (t.accumulate && t.bias) continue;
        const Problem p = make_problem(t);
        for (const Padding& padding : {Padding{3, 0}, Padding{0, 31}, Padding{1, 5}}) {
          check_close(t, p, run(backend, t, p, padding));
        }
      }
    }
  }
}

TEST_CASE("the sum over nothing, and nothing to compute") {
  CpuBackend backend;
  for (const auto& [operand, result] : kPairs) {
    for (const auto& [accumulate, bias] : {std::pair{false, false}, {true, false}, {false, true}}) {
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{3, 5, 0}, {0, 5, 4}, {3, 0, 4}}) {
        const Case t{m, n, k, operand, result, false, false, accumulate, bias};
        const Problem p = make_problem(t);
        check_close(t, p, run(backend, t, p));
      }
    }
  }
}

TEST_CASE("the same bits when run again") {
  CpuOptions options;
  options.threads = 2;
  CpuBackend backend(options);
  for (const auto& [operand, result] : kPairs) {
    const Case t{150, 600, 170, operand, result, false, false, false, true};
    const Problem p = make_problem(t);
    const std::vector<double> first = run(backend, t, p);
    CHECK(run(backend, t, p) == first);
    CpuBackend again(options);
    CHECK(run(again, t, p) == first);
  }
}

TEST_CASE("Eigen computes f32 as well, with the same bits on any number of threads") {
  for (int bits = 0; bits < 16; ++bits) {
    const Case t{300,
                 530,
                 65,
                 DType::kF32,
                 DType::kF32,
                 (bits & 1) != 0,
                 (bits & 2) != 0,
                 (bits & 4) != 0,
                 (bits & 8) != 0};
    if (t.accumulate && t.bias) continue;
    const Problem p = make_problem(t);
    const auto as_floats = [](const std::vector<double>& v) {
      return std::vector<float>(v.begin(), v.end());
    };
    const auto a = as_floats(p.a), b = as_floats(p.b), bias = as_floats(p.bias);
    const Product product{t.m,
                          t.n,
                          t.k,
                          t.transpose_a ? t.m : t.k,
                          t.transpose_b ? t.k : t.n,
                          t.n,
                          t.transpose_a,
                          t.transpose_b,
                          t.accumulate,
                          t.bias,
                          t.operand,
                          t.result};
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 3}) {
      ThreadTeam team(threads);
      results.push_back(as_floats(p.c));
      multiply_eigen(product,
                     {a.data(), b.data(), t.bias ? bias.data() : nullptr, results.back().data()},
                     team);
    }
    check_close(t, p, {results[0].begin(), results[0].end()});
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("fixed tiles: the same bits with any number of threads") {
  const std::tuple<int64_t, int64_t, int64_t> sizes[] = {
      {32, 33, 3000}, {64, 192, 1024}, {513, 520, 17}, {257, 257, 40},
      {1, 700, 300},  {600, 1, 257},   {3, 5, 1}};
  for (const auto& [m, n, k] : sizes) {
    for (int bits = 0; bits < 16; ++bits) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        const Case t{m,
                     n,
                     k,
                     dtype,
                     DType::kF32,
                     (bits & 1) != 0,
                     (bits & 2) != 0,
                     (bits & 4) != 0,
                     (bits & 8) != 0};
        if (t.accumulate && (t.bias || t.transpose_b)) continue;
        const Problem p = make_problem(t);
        std::vector<double> first;
        for (const int threads : {1, 2, 7}) {
          CpuOptions options;
          options.threads = threads;
          options.fixed_tiles = true;
          CpuBackend backend(options);
          const std::vector<double> result = run(backend, t, p);
          if (threads == 1) {
            check_close(t, p, result);
            first = result;
          }
          CAPTURE(threads);
          CHECK(result == first);
        }
      }
    }
  }
}

TEST_CASE("an activation keeps what came before it") {
  CpuBackend backend;
  const Case t{7, 33, 18, DType::kF32, DType::kF32, false, false, false, true};
  const Problem p = make_problem(t);
  const Tensor a = make_tensor(backend, {7, 18}, DType::kF32, p.a);
  const Tensor b = make_tensor(backend, {18, 33}, DType::kF32, p.b);
  const Tensor bias = make_tensor(backend, {33}, DType::kF32, p.bias);
  Tensor before = Tensor::empty(backend, {7, 33}, DType::kF32);
  Tensor c = Tensor::empty(backend, {7, 33}, DType::kF32);
  backend.run(backend.compute_stream(), MatmulArgs{.a = a,
                                                   .b = b,
                                                   .c = c,
                                                   .bias = &bias,
                                                   .activation = Activation::kGeluErf,
                                                   .pre_activation = &before});
  check_close(t, p, before.to_doubles());
  const std::vector<double> got = c.to_doubles();
  for (size_t i = 0; i < got.size(); ++i) {
    const double x = p.expected[i];
    CHECK(got[i] == doctest::Approx(0.5 * x * (1 + std::erf(x / std::sqrt(2.0)))).epsilon(1e-5));
  }
}

}  // namespace
}  // namespace fsdp::cpu
