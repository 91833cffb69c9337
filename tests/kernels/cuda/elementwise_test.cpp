// add, cast, divide, fill_normal, fill_zero, advance_steps on a GPU against the CPU backend: the
// same bits where both only round once.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

constexpr DType kWideTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

TEST_CASE("add of all dtypes gives the bits of the CPU") {
  on_gpu([](Backend& gpu) {
    cpu::CpuBackend cpu;
    for (const DType a_type : kWideTypes) {
      for (const DType b_type : kWideTypes) {
        for (const DType out_type : kWideTypes) {
          for (const int64_t n : {int64_t{1}, int64_t{300}}) {
            const auto run = [&](Backend& backend) {
              const Tensor a = random_tensor(backend, {n}, a_type, 1, -9, 9);
              const Tensor b = random_tensor(backend, {n}, b_type, 2, -9, 9);
              Tensor out = Tensor::empty(backend, {n}, out_type);
              backend.run(backend.compute_stream(), AddArgs{a, b, out});
              return out.to_doubles();
            };
            CHECK(run(gpu) == run(cpu));
          }
        }
      }
    }
  });
}

TEST_CASE("add in place, of every size, aligned and not") {
  on_gpu([](Backend& gpu) {
    cpu::CpuBackend cpu;
    for (const DType dtype : kGpuTypes) {
      for (const int64_t n : kGpuSizes) {
        for (const int64_t offset : {0, 1, 3}) {
          const auto run = [&](Backend& backend) {
            Tensor a = shifted_tensor(backend, {n}, dtype, random_values(n, 1), offset);
            const Tensor b = shifted_tensor(backend, {n}, dtype, random_values(n, 2), offset);
            backend.run(backend.compute_stream(), AddArgs{a, b, a});
            return a.to_doubles();
          };
          CHECK(run(gpu) == run(cpu));
        }
      }
    }
  });
}

TEST_CASE("cast between all pairs gives the bits of the CPU") {
  on_gpu([](Backend& gpu) {
    cpu::CpuBackend cpu;
    for (const DType from : kWideTypes) {
      for (const DType to : kWideTypes) {
        for (const int64_t n : kGpuSizes) {
          const auto run = [&](Backend& backend) {
            // 1e5: beyond f16; 1e-6: a subnormal one
            const Tensor x = make_tensor(backend, {n}, from, random_values(n, 3, -1e5, 1e5));
            const Tensor small = make_tensor(backend, {n}, from, random_values(n, 4, -1e-6, 1e-6));
            Tensor out = Tensor::empty(backend, {n}, to),
                   small_out = Tensor::empty(backend, {n}, to);
            backend.run(backend.compute_stream(), CastArgs{x, out});
            backend.run(backend.compute_stream(), CastArgs{small, small_out});
            return std::vector<Values>{out.to_doubles(), small_out.to_doubles()};
          };
          CHECK(run(gpu) == run(cpu));
        }
      }
    }
  });
}

TEST_CASE("divide gives the bits of the CPU") {
  on_gpu([](Backend& gpu) {
    cpu::CpuBackend cpu;
    for (const DType dtype : kWideTypes) {
      for (const int64_t n : kGpuSizes) {
        for (const int64_t offset : {0, 1}) {
          const auto run = [&](Backend& backend) {
            Tensor x = shifted_tensor(backend, {n}, dtype, random_values(n, 5), offset);
            backend.run(backend.compute_stream(), DivideArgs{x, 1.7});
            return x.to_doubles();
          };
          CHECK(run(gpu) == run(cpu));
        }
      }
    }
  });
}

TEST_CASE("fill_normal draws the numbers of the CPU, whatever the first index") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const int64_t first : {0, 1, 12345}) {
        check_against_cpu(gpu, dtype, [&](Backend& backend) {
          Tensor x = Tensor::empty(backend, {1001}, dtype),
                 ones = Tensor::empty(backend, {7}, dtype);
          backend.run(backend.compute_stream(),
                      FillNormalArgs{x, 0.5, 0.02, 42, hash_name("h.0.w"), first});
          backend.run(backend.compute_stream(), FillNormalArgs{ones, 1, 0, 42, 0, 0});
          return std::vector<Values>{x.to_doubles(), ones.to_doubles()};
        });
      }
    }
  });
}

TEST_CASE("fill_zero, copies and views") {
  on_gpu([](Backend& gpu) {
    const Tensor zeros = Tensor::zeros(gpu, {70001}, DType::kF32);
    CHECK(zeros.to_doubles() == Values(70001, 0.0));
    const Values values = rounded(random_values(700001, 1), DType::kF32);  // more than is staged
    const Tensor x = make_tensor(gpu, {700001}, DType::kF32, values);
    Tensor y = Tensor::empty(gpu, {700001}, DType::kF32);
    gpu.copy(gpu.compute_stream(), y.data(), x.data(), x.bytes());
    CHECK(y.to_doubles() == values);
  });
}

TEST_CASE("advance_steps adds what is present unless the step is skipped") {
  on_gpu([](Backend& gpu) {
    const std::vector<int32_t> present = {1, 0, 1, 1, 0};
    for (const int32_t skip : {0, 1}) {
      Tensor counts = Tensor::from_host<int32_t>(gpu, {5}, {3, 3, 0, 7, 0});
      gpu.run(gpu.compute_stream(), AdvanceStepsArgs{counts, Tensor::from_host(gpu, {5}, present),
                                                     Tensor::from_host<int32_t>(gpu, {}, {skip})});
      const std::vector<int32_t> expected = {3 + !skip, 3, 0 + !skip, 7 + !skip, 0};
      CHECK(counts.to_host<int32_t>() == expected);
    }
  });
}

TEST_CASE("f64 is refused by name") {
  on_gpu([](Backend& gpu) {
    Tensor x = Tensor::zeros(gpu, {4}, DType::kF64);
    CHECK_THROWS_WITH_AS(
        gpu.run(gpu.compute_stream(), ActivationForwardArgs{Activation::kGeluTanh, x, x}),
        "[activation_forward] dtype: expected f32, bf16 or f16 on a GPU, got f64", Error);
  });
}

}  // namespace
}  // namespace fsdp::test
