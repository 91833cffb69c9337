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

void check_forward(cuda::CudaBackend& gpu, Case c, DType dtype, Options options) {
  const Shape shape = {c.rows, c.columns};
  CpuTensors t;
  const Tensor &x = t.of(shape, dtype, -2, 3), &residual = t.of(shape, dtype);
  const Tensor &weight = t.of({c.columns}, dtype, 0.5, 1.5), &bias = t.of({c.columns}, dtype);
  const NormForwardArgs args = {.x = x,
                                .residual = options.fused ? &residual : nullptr,
                                .sum = options.fused ? &t.of(shape, dtype) : nullptr,
                                .weight = weight,
                                .bias = options.layer ? &bias : nullptr,
                                .y = t.of(shape, dtype),
                                .mean = options.layer ? &t.of({c.rows}, DType::kF32) : nullptr,
                                .rstd = t.of({c.rows}, DType::kF32),
                                .epsilon = 1e-5};
#ifdef __SANITIZE_ADDRESS__  // there the CPU sums one by one: long rows take their toll
  const double roundings = dtype == DType::kF32 && c.columns > 5000 ? 32 : 1;
#else
  const double roundings = 1;
#endif
  const Match match = {.roundings = roundings, .offsets = {options.offset}};
  options.layer ? check_call(gpu, LayerNormForwardArgs{args}, match)
                : check_call(gpu, RmsNormForwardArgs{args}, match);
}

TEST_CASE("norm forward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Case c : kForward) {
        for (const Options options : kOptions) {
          if (covered(c, options)) check_forward(gpu, c, dtype, options);
        }
      }
    }
  });
}

// `frozen`: no gradient of weight and bias. Otherwise in two dtypes, one of them added to; and in
// place.
void check_backward(cuda::CudaBackend& gpu, Case c, DType dtype, Options options, bool frozen) {
  const Shape shape = {c.rows, c.columns};
  CpuTensors t;
  Tensor& dy = t.of(shape, dtype);
  const Tensor &dsum = t.of(shape, dtype), &x = t.of(shape, dtype, -2, 3),
               &weight = t.of({c.columns}, dtype, 0.5, 1.5), &mean = t.of({c.rows}, DType::kF32),
               &rstd = t.of({c.rows}, DType::kF32, 0.5, 1.5);
  Tensor &dweight = t.of({c.columns}, DType::kF32), &dbias = t.of({c.columns}, dtype),
         &dx = t.of(shape, dtype);
  for (const bool in_place : {false, true}) {
    const NormBackwardArgs args = {.dy = dy,
                                   .dsum = options.fused ? &dsum : nullptr,
                                   .x = x,
                                   .weight = weight,
                                   .mean = options.layer ? &mean : nullptr,
                                   .rstd = rstd,
                                   .dx = in_place ? dy : dx,
                                   .dweight = frozen ? nullptr : &dweight,
                                   .dbias = options.layer && !frozen ? &dbias : nullptr,
                                   .accumulate_weight = !in_place,
                                   .accumulate_bias = false};
    const Match match = {.offsets = {options.offset}};
    options.layer ? check_call(gpu, LayerNormBackwardArgs{args}, match)
                  : check_call(gpu, RmsNormBackwardArgs{args}, match);
  }
}

TEST_CASE("norm backward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Case c : kBackward) {
        for (const Options options : kOptions) {
          if (covered(c, options)) check_backward(gpu, c, dtype, options, false);
        }
      }
      for (const Case c : {Case{5, 40}, Case{3, 776}, Case{2, 33}}) {
        check_backward(gpu, c, dtype, {true, true, 0}, true);
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
