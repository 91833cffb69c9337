// Layer norm and RMS norm on a GPU against the CPU backend (which is tested against plain loops and
// finite differences): every kernel of norm.cu and norm_backward.cu by its row length.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

struct Case {
  int64_t rows, columns;
};
// Lengths at which another kernel begins, for packets of 4 and of 8 elements, and odd ones.
// Backward with more rows than there are blocks on four multiprocessors (but for the longest row).
constexpr Case kForward[] = {{1, 1},    {3, 33},   {9, 384},  {2, 776},  {2, 1032},
                             {2, 2056}, {2, 4104}, {1, 8200}, {1, 16392}};
constexpr Case kBackward[] = {{1, 1},    {70, 8},   {10, 19},  {35, 264}, {17, 776},
                              {9, 1032}, {5, 2056}, {9, 4104}, {1, 8200}};

struct Options {
  bool layer, fused;
  int64_t offset;  // elements by which tensors miss their alignment
};
constexpr Options kOptions[] = {
    {true, false, 0}, {true, true, 0}, {false, true, 0}, {true, true, 1}, {false, false, 1}};

// The kernels of long rows differ in length alone.
bool covered(Case c, Options options) {
  return c.columns < 500 || (options.layer && options.fused && options.offset == 0);
}

std::vector<Values> forward(Backend& backend, Case c, DType dtype, Options options) {
  const Shape shape = {c.rows, c.columns};
  const auto tensor = [&](Shape of, uint64_t seed, double low, double high) {
    return shifted_tensor(backend, of, dtype, random_values(of.numel(), seed, low, high),
                          options.offset);
  };
  const Tensor x = tensor(shape, 1, -2, 3), residual = tensor(shape, 2, -1, 1);
  const Tensor weight = tensor({c.columns}, 3, 0.5, 1.5), bias = tensor({c.columns}, 4, -1, 1);
  Tensor sum = Tensor::empty(backend, shape, dtype), y = Tensor::empty(backend, shape, dtype);
  Tensor mean = Tensor::zeros(backend, {c.rows}, DType::kF32);
  Tensor rstd = Tensor::empty(backend, {c.rows}, DType::kF32);
  const NormForwardArgs args = {.x = x,
                                .residual = options.fused ? &residual : nullptr,
                                .sum = options.fused ? &sum : nullptr,
                                .weight = weight,
                                .bias = options.layer ? &bias : nullptr,
                                .y = y,
                                .mean = options.layer ? &mean : nullptr,
                                .rstd = rstd,
                                .epsilon = 1e-5};
  if (options.layer) {
    backend.run(backend.compute_stream(), LayerNormForwardArgs{args});
  } else {
    backend.run(backend.compute_stream(), RmsNormForwardArgs{args});
  }
  return {(options.fused ? sum : x).to_doubles(), y.to_doubles(), mean.to_doubles(),
          rstd.to_doubles()};
}

TEST_CASE("norm forward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Case c : kForward) {
        for (const Options options : kOptions) {
          if (!covered(c, options)) continue;
          CAPTURE(c.columns);
#ifdef __SANITIZE_ADDRESS__  // there the CPU sums one by one: long rows take their toll
          const double roundings = dtype == DType::kF32 && c.columns > 5000 ? 32 : 1;
#else
          const double roundings = 1;
#endif
          check_against_cpu(
              gpu, dtype, [&](Backend& backend) { return forward(backend, c, dtype, options); },
              roundings);
        }
      }
    }
  });
}

// `frozen`: no gradient of weight and bias. Otherwise in two dtypes, one of them added to.
std::vector<Values> backward(Backend& backend, Case c, DType dtype, Options options, bool frozen) {
  const Shape shape = {c.rows, c.columns};
  const auto tensor = [&](Shape of, uint64_t seed, double low, double high) {
    return shifted_tensor(backend, of, dtype, random_values(of.numel(), seed, low, high),
                          options.offset);
  };
  Tensor dy = tensor(shape, 1, -1, 1);
  const Tensor dsum = tensor(shape, 2, -1, 1), x = tensor(shape, 3, -2, 3);
  const Tensor weight = tensor({c.columns}, 4, 0.5, 1.5);
  const Tensor mean = random_tensor(backend, {c.rows}, DType::kF32, 5);
  const Tensor rstd = random_tensor(backend, {c.rows}, DType::kF32, 6, 0.5, 1.5);
  Tensor dx = Tensor::empty(backend, shape, dtype);
  Tensor dweight = random_tensor(backend, {c.columns}, DType::kF32, 7);
  Tensor dbias = Tensor::zeros(backend, {c.columns}, dtype);
  const bool bias = options.layer && !frozen;
  const auto run = [&](Tensor& to, bool accumulate) {
    const NormBackwardArgs args = {.dy = dy,
                                   .dsum = options.fused ? &dsum : nullptr,
                                   .x = x,
                                   .weight = weight,
                                   .mean = options.layer ? &mean : nullptr,
                                   .rstd = rstd,
                                   .dx = to,
                                   .dweight = frozen ? nullptr : &dweight,
                                   .dbias = bias ? &dbias : nullptr,
                                   .accumulate_weight = accumulate,
                                   .accumulate_bias = false};
    if (options.layer) {
      backend.run(backend.compute_stream(), LayerNormBackwardArgs{args});
    } else {
      backend.run(backend.compute_stream(), RmsNormBackwardArgs{args});
    }
  };
  run(dx, true);
  const Values added = dweight.to_doubles();
  run(dy, false);  // in place
  return {dx.to_doubles(), dy.to_doubles(), added, dweight.to_doubles(), dbias.to_doubles()};
}

TEST_CASE("norm backward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Case c : kBackward) {
        for (const Options options : kOptions) {
          if (!covered(c, options)) continue;
          CAPTURE(c.columns);
          check_against_cpu(gpu, dtype, [&](Backend& backend) {
            return backward(backend, c, dtype, options, false);
          });
        }
      }
      for (const Case c : {Case{5, 40}, Case{3, 776}, Case{2, 33}}) {
        check_against_cpu(gpu, dtype, [&](Backend& backend) {
          return backward(backend, c, dtype, {true, true, 0}, true);
        });
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
