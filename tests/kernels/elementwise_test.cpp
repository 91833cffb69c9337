// add, cast, scale, fill_normal and plain copies against loops in double.
#include "core/layer_args.h"
#include "core/shard_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::cpu {
namespace {

using test::kFloatingTypes;
using test::random_tensor;
using test::rounded;

constexpr int64_t kSizes[] = {0, 1, 7, 511, 513, 70001};  // around the run and the grain

TEST_CASE("add forms the sum in the accumulation dtype and rounds once") {
  CpuBackend backend(test::with_threads(2));
  for (const DType a_type : kFloatingTypes) {
    for (const DType b_type : kFloatingTypes) {
      for (const DType out_type : kFloatingTypes) {
        const bool wide = a_type == DType::kF64 || b_type == DType::kF64 || out_type == DType::kF64;
        for (const int64_t n : kSizes) {
          const Tensor a = random_tensor(backend, {n}, a_type, 1, -9, 9);
          const Tensor b = random_tensor(backend, {n}, b_type, 2, -9, 9);
          Tensor out = Tensor::empty(backend, {n}, out_type);
          backend.run(backend.compute_stream(), AddArgs{a, b, out});
          std::vector<double> sum = a.to_doubles();
          const std::vector<double> y = b.to_doubles();
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += y[i];
          if (!wide) sum = rounded(sum, DType::kF32);
          CHECK(out.to_doubles() == rounded(sum, out_type));
        }
      }
    }
  }
}

TEST_CASE("add in place") {
  CpuBackend backend;
  for (const DType dtype : kFloatingTypes) {
    Tensor a = random_tensor(backend, {1001}, dtype, 1);
    Tensor b = random_tensor(backend, {1001}, dtype, 2);
    Tensor out = Tensor::empty(backend, {1001}, dtype);
    backend.run(backend.compute_stream(), AddArgs{a, b, out});
    const std::vector<double> expected = out.to_doubles();
    Tensor a_copy = random_tensor(backend, {1001}, dtype, 1);
    backend.run(backend.compute_stream(), AddArgs{a_copy, b, a_copy});
    CHECK(a_copy.to_doubles() == expected);
    backend.run(backend.compute_stream(), AddArgs{a, b, b});
    CHECK(b.to_doubles() == expected);
  }
}

TEST_CASE("cast between all floating dtypes") {
  CpuBackend backend(test::with_threads(2));
  for (const DType from : kFloatingTypes) {
    for (const DType to : kFloatingTypes) {
      for (const int64_t n : kSizes) {
        const Tensor x = random_tensor(backend, {n}, from, 3, -100, 100);
        Tensor out = Tensor::empty(backend, {n}, to);
        backend.run(backend.compute_stream(), CastArgs{x, out});
        // f64 reaches 16 bits through f32
        std::vector<double> expected = x.to_doubles();
        if (to != DType::kF64) expected = rounded(expected, DType::kF32);
        CHECK(out.to_doubles() == rounded(expected, to));
      }
    }
  }
}

TEST_CASE("divide in place") {
  CpuBackend backend(test::with_threads(2));
  for (const DType dtype : kFloatingTypes) {
    for (const int64_t n : kSizes) {
      Tensor x = random_tensor(backend, {n}, dtype, 4);
      std::vector<double> expected = x.to_doubles();
      backend.run(backend.compute_stream(), DivideArgs{x, 1.5});
      for (double& value : expected) value /= 1.5;
      CHECK(x.to_doubles() == rounded(rounded(expected, accumulation_dtype(dtype)), dtype));
    }
  }
}

TEST_CASE("fill_normal is keyed by element, not by piece") {
  CpuBackend backend(test::with_threads(2));
  for (const DType dtype : kFloatingTypes) {
    for (const int64_t first : {0, 1, 12345}) {
      Tensor x = Tensor::empty(backend, {70001}, dtype);
      backend.run(backend.compute_stream(),
                  FillNormalArgs{x, 0.5, 0.02, 42, hash_name("h.0.w"), first});
      std::vector<double> expected;
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double z = normal_at(42, hash_name("h.0.w"), static_cast<uint64_t>(first + i));
        expected.push_back(std::fma(0.02, z, 0.5));
      }
      if (dtype != DType::kF64) expected = rounded(expected, DType::kF32);
      CHECK(x.to_doubles() == rounded(expected, dtype));
    }
  }
  Tensor ones = Tensor::empty(backend, {100}, DType::kBF16);
  backend.run(backend.compute_stream(), FillNormalArgs{ones, 1, 0, 42, 0, 0});
  CHECK(ones.to_doubles() == std::vector<double>(100, 1.0));
}

TEST_CASE("copy and fill_zero of more than one piece") {
  CpuBackend backend(test::with_threads(2));
  const Tensor x = random_tensor(backend, {700001}, DType::kF32, 5);
  Tensor y = Tensor::zeros(backend, {700001}, DType::kF32);
  CHECK(y.to_doubles() == std::vector<double>(700001, 0.0));
  backend.copy(backend.compute_stream(), y.data(), x.data(), x.bytes());
  CHECK(y.to_doubles() == x.to_doubles());
}

}  // namespace
}  // namespace fsdp::cpu
