// Layer norm and RMS norm against plain loops in double, their gradients in every dtype against
// f64; rows 1, odd widths. Finite differences: tests/core/ops/norm_test.cpp.
#include "core/layer_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

constexpr double kEpsilon = 1e-5;

struct NormShape {
  int64_t rows, columns;
};
constexpr NormShape kShapes[] = {{1, 1}, {1, 7}, {3, 33}, {17, 64}, {70, 19}, {129, 257}};

struct Reference {
  Values sum, y, mean, rstd;
};

Reference norm_reference(NormShape shape, bool layer, const Values& x, const Values& residual,
                         const Values& weight, const Values& bias, DType dtype) {
  Reference r{x, Values(x.size()), {}, {}};
  for (size_t i = 0; i < residual.size(); ++i) r.sum[i] += residual[i];
  if (!residual.empty()) r.sum = rounded(r.sum, dtype);
  const auto columns = static_cast<size_t>(shape.columns);
  for (size_t row = 0; row < r.sum.size(); row += columns) {
    double mean = 0, square = 0;
    for (size_t c = 0; layer && c < columns; ++c) mean += r.sum[row + c] / double(columns);
    for (size_t c = 0; c < columns; ++c) square += std::pow(r.sum[row + c] - mean, 2);
    const double rstd = 1 / std::sqrt(square / double(columns) + kEpsilon);
    for (size_t c = 0; c < columns; ++c) {
      double h = (r.sum[row + c] - mean) * rstd;
      if (!layer) h = rounded({h}, dtype)[0];
      r.y[row + c] = h * weight[c] + (layer ? bias[c] : 0);
    }
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
  }
  return r;
}

struct Inputs {
  Values x, residual, weight, bias, dy, dsum;

  Inputs(NormShape s, DType dtype)
      : x(rounded(random_values(s.rows * s.columns, 1, -2, 3), dtype)),
        residual(rounded(random_values(s.rows * s.columns, 2), dtype)),
        weight(rounded(random_values(s.columns, 3, 0.5, 1.5), dtype)),
        bias(rounded(random_values(s.columns, 4), dtype)),
        dy(rounded(random_values(s.rows * s.columns, 5), dtype)),
        dsum(rounded(random_values(s.rows * s.columns, 6), dtype)) {}
};

// {sum, y, mean, rstd}; without residual the sum is x.
std::vector<Values> forward(Backend& backend, NormShape s, DType dtype, bool layer,
                            const Inputs& in, bool fused) {
  const DType wide = accumulation_dtype(dtype);
  const Shape shape = {s.rows, s.columns};
  const Tensor x = make_tensor(backend, shape, dtype, in.x);
  const Tensor residual = make_tensor(backend, shape, dtype, in.residual);
  const Tensor weight = make_tensor(backend, {s.columns}, dtype, in.weight);
  const Tensor bias = make_tensor(backend, {s.columns}, dtype, in.bias);
  Tensor sum = Tensor::empty(backend, shape, dtype), y = Tensor::empty(backend, shape, dtype);
  Tensor mean = Tensor::zeros(backend, {s.rows}, wide);
  Tensor rstd = Tensor::empty(backend, {s.rows}, wide);
  const NormForwardArgs args = {.x = x,
                                .residual = fused ? &residual : nullptr,
                                .sum = fused ? &sum : nullptr,
                                .weight = weight,
                                .bias = layer ? &bias : nullptr,
                                .y = y,
                                .mean = layer ? &mean : nullptr,
                                .rstd = rstd,
                                .epsilon = kEpsilon};
  if (layer) {
    backend.run(backend.compute_stream(), LayerNormForwardArgs{args});
  } else {
    backend.run(backend.compute_stream(), RmsNormForwardArgs{args});
  }
  return {(fused ? sum : x).to_doubles(), y.to_doubles(), mean.to_doubles(), rstd.to_doubles()};
}

// {dx, dweight, dbias}; dx overwrites dy; dweight and dbias (f32 or f64) start at 1.
std::vector<Values> backward(Backend& backend, NormShape s, DType dtype, bool layer,
                             const Inputs& in, bool accumulate) {
  const DType wide = accumulation_dtype(dtype);
  const Shape shape = {s.rows, s.columns};
  const Reference r = norm_reference(s, layer, in.x, {}, in.weight, in.bias, dtype);
  Tensor dy = make_tensor(backend, shape, dtype, in.dy);
  const Tensor dsum = make_tensor(backend, shape, dtype, in.dsum);
  const Tensor x = make_tensor(backend, shape, dtype, in.x);
  const Tensor weight = make_tensor(backend, {s.columns}, dtype, in.weight);
  const Tensor mean = make_tensor(backend, {s.rows}, wide, r.mean);
  const Tensor rstd = make_tensor(backend, {s.rows}, wide, r.rstd);
  const Values ones(static_cast<size_t>(s.columns), 1.0);
  Tensor dweight = make_tensor(backend, {s.columns}, wide, ones);
  Tensor dbias = make_tensor(backend, {s.columns}, wide, ones);
  const NormBackwardArgs args = {.dy = dy,
                                 .dsum = accumulate ? &dsum : nullptr,
                                 .x = x,
                                 .weight = weight,
                                 .mean = layer ? &mean : nullptr,
                                 .rstd = rstd,
                                 .dx = dy,
                                 .dweight = &dweight,
                                 .dbias = layer ? &dbias : nullptr,
                                 .accumulate_weight = accumulate,
                                 .accumulate_bias = accumulate};
  if (layer) {
    backend.run(backend.compute_stream(), LayerNormBackwardArgs{args});
  } else {
    backend.run(backend.compute_stream(), RmsNormBackwardArgs{args});
  }
  return {dy.to_doubles(), dweight.to_doubles(), dbias.to_doubles()};
}

TEST_CASE("norm forward against a reference in double") {
  for (const DType dtype : kFloatingTypes) {
    for (const NormShape s : kShapes) {
      const Inputs in(s, dtype);
      for (const bool layer : {true, false}) {
        for (const bool fused : {true, false}) {
          CAPTURE(name_of(dtype));
          CAPTURE(s.rows);
          CAPTURE(s.columns);
          const auto out = on_any_threads(
              [&](Backend& backend) { return forward(backend, s, dtype, layer, in, fused); });
          const Reference r = norm_reference(s, layer, in.x, fused ? in.residual : Values{},
                                             in.weight, in.bias, dtype);
          CHECK(out[0] == r.sum);
          // the rounding of h in RMS norm may fall on the other side
          CHECK(largest_error(out[1], r.y) < 2 * tolerance(dtype, 16));
          if (layer) CHECK(largest_error(out[2], r.mean) < tolerance(accumulation_dtype(dtype)));
          CHECK(largest_error(out[3], r.rstd, 0) < tolerance(accumulation_dtype(dtype), 16));
        }
      }
    }
  }
}

TEST_CASE("layer norm without a bias is one with a zero bias") {
  cpu::CpuBackend backend;
  const NormShape s = {5, 11};
  Inputs in(s, DType::kF64);
  std::fill(in.bias.begin(), in.bias.end(), 0.0);
  const auto expected = forward(backend, s, DType::kF64, true, in, false);
  const Tensor x = make_tensor(backend, {5, 11}, DType::kF64, in.x);
  const Tensor weight = make_tensor(backend, {11}, DType::kF64, in.weight);
  Tensor y = Tensor::empty(backend, {5, 11}, DType::kF64);
  Tensor mean = Tensor::empty(backend, {5}, DType::kF64);
  Tensor rstd = Tensor::empty(backend, {5}, DType::kF64);
  backend.run(
      backend.compute_stream(),
      LayerNormForwardArgs{
          {.x = x, .weight = weight, .y = y, .mean = &mean, .rstd = rstd, .epsilon = kEpsilon}});
  CHECK(y.to_doubles() == expected[1]);
}

TEST_CASE("norm backward in every dtype against f64, on any number of threads") {
  for (const DType dtype : kFloatingTypes) {
    for (const NormShape s : kShapes) {
      const Inputs in(s, dtype);
      for (const bool layer : {true, false}) {
        for (const bool accumulate : {true, false}) {
          CAPTURE(name_of(dtype));
          CAPTURE(s.rows);
          CAPTURE(s.columns);
          const auto out = on_any_threads(
              [&](Backend& backend) { return backward(backend, s, dtype, layer, in, accumulate); });
          cpu::CpuBackend backend;
          const auto exact = backward(backend, s, DType::kF64, layer, in, accumulate);
          // one row of one column has rstd 1 / sqrt(epsilon): everything cancels there
          const double limit = s.columns == 1 ? 1e-2 : 1;
          CHECK(limit * largest_error(out[0], exact[0]) < tolerance(dtype, 32));
          CHECK(largest_error(out[1], exact[1]) < tolerance(accumulation_dtype(dtype), 64));
          if (layer)
            CHECK(largest_error(out[2], exact[2]) < tolerance(accumulation_dtype(dtype), 32));
        }
      }
    }
  }
}

TEST_CASE("frozen parameters get no gradient, bf16 gradients are rounded once") {
  cpu::CpuBackend backend(with_threads(2));
  const NormShape s = {40, 9};
  const Inputs in(s, DType::kBF16);
  const auto wide = backward(backend, s, DType::kBF16, true, in, false);
  const Reference r = norm_reference(s, true, in.x, {}, in.weight, in.bias, DType::kBF16);
  const Tensor x = make_tensor(backend, {40, 9}, DType::kBF16, in.x);
  const Tensor dy = make_tensor(backend, {40, 9}, DType::kBF16, in.dy);
  const Tensor weight = make_tensor(backend, {9}, DType::kBF16, in.weight);
  const Tensor mean = make_tensor(backend, {40}, DType::kF32, r.mean);
  const Tensor rstd = make_tensor(backend, {40}, DType::kF32, r.rstd);
  Tensor dx = Tensor::empty(backend, {40, 9}, DType::kBF16);
  Tensor dweight = Tensor::empty(backend, {9}, DType::kBF16);
  backend.run(backend.compute_stream(), LayerNormBackwardArgs{{.dy = dy,
                                                               .x = x,
                                                               .weight = weight,
                                                               .mean = &mean,
                                                               .rstd = rstd,
                                                               .dx = dx,
                                                               .dweight = &dweight}});
  CHECK(dx.to_doubles() == wide[0]);
  CHECK(dweight.to_doubles() == rounded(wide[1], DType::kBF16));
}

}  // namespace
}  // namespace fsdp::test
