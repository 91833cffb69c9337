// Matrix products of the CUDA backend against the CPU backend: dtypes, transposes, accumulation
// into f32, bias, activations, shapes that cuBLASLt has no epilogue for, views that are not
// aligned.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

struct Extents {
  int64_t m, n, k;
};
constexpr Extents kShapes[] = {{1, 1, 1}, {3, 5, 7}, {8, 24, 16}, {17, 40, 33}, {5, 12, 3}};

// Relative to the largest result: sums have terms of both signs.
void check_product(cuda::CudaBackend& gpu, DType dtype,
                   const std::function<std::vector<Values>(Backend&)>& run) {
  check_against_cpu(gpu, dtype, run, 1, 4);
}

TEST_CASE("products of all dtypes and transposes, stored and accumulated") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const DType result : {dtype, DType::kF32}) {
        for (const auto& [m, n, k] : kShapes) {
          for (int variant = 0; variant < 8; ++variant) {
            const bool ta = variant & 1, tb = variant & 2, accumulate = variant & 4;
            check_product(gpu, result, [&, m = m, n = n, k = k](Backend& backend) {
              const Tensor a = random_tensor(backend, ta ? Shape{k, m} : Shape{m, k}, dtype, 1);
              const Tensor b = random_tensor(backend, tb ? Shape{n, k} : Shape{k, n}, dtype, 2);
              Tensor c = random_tensor(backend, {m, n}, result, 3);
              backend.run(backend.compute_stream(), MatmulArgs{.a = a,
                                                               .b = b,
                                                               .c = c,
                                                               .transpose_a = ta,
                                                               .transpose_b = tb,
                                                               .accumulate = accumulate});
              return std::vector<Values>{c.to_doubles()};
            });
          }
        }
      }
    }
  });
}

TEST_CASE("bias and activations, with and without an epilogue for them") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const auto& [m, n, k] : kShapes) {
        for (const Activation activation : {Activation::kNone, Activation::kGeluTanh,
                                            Activation::kGeluErf, Activation::kGeluBloom}) {
          for (const bool with_bias : {true, false}) {
            check_against_cpu(
                gpu, dtype,
                [&, m = m, n = n, k = k](Backend& backend) {
                  const Tensor a = random_tensor(backend, {m, k}, dtype, 1);
                  const Tensor b = random_tensor(backend, {n, k}, dtype, 2);
                  const Tensor bias = random_tensor(backend, {n}, dtype, 3);
                  Tensor c = Tensor::empty(backend, {m, n}, dtype);
                  Tensor before = Tensor::zeros(backend, {m, n}, dtype);
                  const bool active = activation != Activation::kNone;
                  backend.run(backend.compute_stream(),
                              MatmulArgs{.a = a,
                                         .b = b,
                                         .c = c,
                                         .transpose_b = true,
                                         .bias = with_bias ? &bias : nullptr,
                                         .activation = activation,
                                         .pre_activation = active ? &before : nullptr});
                  return std::vector<Values>{c.to_doubles(), before.to_doubles()};
                },
                2, 4);
          }
        }
      }
    }
  });
}

// The first is aligned as the libraries like it: its algorithm does not serve the others.
TEST_CASE("a bias that begins anywhere is added") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const bool gelu : {false, true}) {
        for (const int64_t offset : {0, 128, 8, 4, 2, 1, 3}) {
          CAPTURE(name_of(dtype));
          CAPTURE(offset);
          check_against_cpu(
              gpu, dtype,
              [&](Backend& backend) {
                const Tensor a = random_tensor(backend, {4, 8}, dtype, 1);
                const Tensor b = random_tensor(backend, {16, 8}, dtype, 2);
                const Tensor bias =
                    shifted_tensor(backend, {16}, dtype, random_values(16, 3), offset);
                Tensor c = Tensor::empty(backend, {4, 16}, dtype);
                Tensor before = Tensor::zeros(backend, {4, 16}, dtype);
                backend.run(
                    backend.compute_stream(),
                    MatmulArgs{.a = a,
                               .b = b,
                               .c = c,
                               .transpose_b = true,
                               .bias = &bias,
                               .activation = gelu ? Activation::kGeluTanh : Activation::kNone,
                               .pre_activation = gelu ? &before : nullptr});
                return std::vector<Values>{c.to_doubles()};
              },
              1, 4);
        }
      }
    }
  });
}

TEST_CASE("rows of a and c may be padded: what lies behind them is not read") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const auto& [m, n, k] : {Extents{3, 5, 7}, {4, 20, 9}}) {
        for (int variant = 0; variant < 16; ++variant) {
          const bool ta = variant & 1, tb = variant & 2, accumulate = variant & 4;
          const bool with_bias = variant & 8;
          if (accumulate && with_bias) continue;
          for (const auto& [pad_a, pad_c] : {std::pair{0, 0}, {3, 0}, {0, 3}, {1, 11}}) {
            CAPTURE(pad_a);
            CAPTURE(pad_c);
            CAPTURE(variant);
            for (const DType result : {dtype, DType::kF32}) {
              check_product(
                  gpu, result, [&, m = m, n = n, k = k, pad_a = pad_a, pad_c = pad_c](Backend& on) {
                    const Tensor a =
                        padded_tensor(on, ta ? m : k, pad_a, dtype, random_values(m * k, 1));
                    const Tensor b = random_tensor(on, tb ? Shape{n, k} : Shape{k, n}, dtype, 2);
                    const Tensor bias = random_tensor(on, {n}, dtype, 3);
                    Tensor c = padded_tensor(on, n, pad_c, result, random_values(m * n, 4));
                    on.run(on.compute_stream(), MatmulArgs{.a = a,
                                                           .b = b,
                                                           .c = c,
                                                           .transpose_a = ta,
                                                           .transpose_b = tb,
                                                           .accumulate = accumulate,
                                                           .bias = with_bias ? &bias : nullptr});
                    return std::vector<Values>{without_padding(c, n)};
                  });
            }
          }
        }
      }
    }
  });
}

TEST_CASE("a sum over nothing, no rows, and views that are not aligned") {
  on_gpu([](cuda::CudaBackend& gpu) {
    check_against_cpu(gpu, DType::kF32, [](Backend& backend) {
      const Tensor a = Tensor::empty(backend, {3, 0}, DType::kF32);
      const Tensor b = Tensor::empty(backend, {0, 5}, DType::kF32);
      const Tensor bias = random_tensor(backend, {5}, DType::kF32, 3);
      Tensor c = random_tensor(backend, {3, 5}, DType::kF32, 4), kept = c;
      backend.run(backend.compute_stream(), MatmulArgs{.a = a, .b = b, .c = c, .bias = &bias});
      Tensor added = random_tensor(backend, {3, 5}, DType::kF32, 5);
      backend.run(backend.compute_stream(),
                  MatmulArgs{.a = a, .b = b, .c = added, .accumulate = true});
      Tensor wide = padded_tensor(backend, 5, 3, DType::kF32, random_values(15, 6));
      backend.run(backend.compute_stream(), MatmulArgs{.a = a, .b = b, .c = wide, .bias = &bias});
      const Tensor none = Tensor::empty(backend, {0, 4}, DType::kF32);
      const Tensor weight = random_tensor(backend, {4, 5}, DType::kF32, 5);
      Tensor no_rows = Tensor::empty(backend, {0, 5}, DType::kF32);
      backend.run(backend.compute_stream(), MatmulArgs{.a = none, .b = weight, .c = no_rows});
      return std::vector<Values>{c.to_doubles(), added.to_doubles(), without_padding(wide, 5)};
    });
    check_product(gpu, DType::kBF16, [](Backend& backend) {
      const Tensor a = shifted_tensor(backend, {6, 8}, DType::kBF16, random_values(48, 1));
      const Tensor b = shifted_tensor(backend, {8, 16}, DType::kBF16, random_values(128, 2));
      Tensor c = shifted_tensor(backend, {6, 16}, DType::kBF16, random_values(96, 3));
      backend.run(backend.compute_stream(), MatmulArgs{.a = a, .b = b, .c = c, .accumulate = true});
      return std::vector<Values>{c.to_doubles()};
    });
  });
}

TEST_CASE("TF32 rounds the operands of f32 products, where it is asked for") {
  const auto products = [](Backend& backend) {
    std::vector<Values> out;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Tensor a = random_tensor(backend, {32, 64}, dtype, 1);
      const Tensor b = random_tensor(backend, {64, 16}, dtype, 2);
      Tensor c = Tensor::empty(backend, {32, 16}, DType::kF32);
      backend.run(backend.compute_stream(), MatmulArgs{.a = a, .b = b, .c = c});
      out.push_back(c.to_doubles());
    }
    return out;
  };
  on_gpu([&](cuda::CudaBackend& exact) {
    cuda::CudaBackend rounding({.tf32 = true});
    const std::vector<Values> rounded = products(rounding), expected = products(exact);
    // A sum of 64 products of values around 1, each operand off by at most 2^-11 of itself.
    const double error = largest_error(rounded[0], expected[0], 8);
    if (emulated(exact)) CHECK(error > 1e-6);  // a GPU need not use it for so small a product
    CHECK(error < 1e-2);
    CHECK(rounded[1] == expected[1]);
  });
}

TEST_CASE("products of f64 are refused by name") {
  on_gpu([](Backend& gpu) {
    Tensor x = Tensor::zeros(gpu, {2, 2}, DType::kF64);
    CHECK_THROWS_WITH_AS(gpu.run(gpu.compute_stream(), MatmulArgs{.a = x, .b = x, .c = x}),
                         "[matmul] dtype: expected f32, bf16 or f16 on a GPU, got f64", Error);
  });
}

}  // namespace
}  // namespace fsdp::test
