// Norms on a GPU against the CPU backend: spans, blocks, what is not finite, the clip coefficient.
#include <cmath>

#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

using Spans = std::vector<std::pair<int64_t, int64_t>>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPowers[] = {2, 1, 3, kInfinity};
const DType kNormTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

TEST_CASE("power_sum over spans, aligned and not, with an empty one and with none") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kNormTypes) {
      for (const double power : kPowers) {
        for (const Spans& spans : {Spans{}, Spans{{0, 1}}, Spans{{0, 5000}},
                                   Spans{{3, 1030}, {1030, 1030}, {1031, 4999}}}) {
          check_against_cpu(
              gpu, DType::kF32,
              [&](Backend& backend) {
                const Tensor x = random_tensor(backend, {5000}, dtype, 1);
                Tensor sum = Tensor::empty(backend, {}, DType::kF64);
                Tensor added = make_tensor(backend, {}, DType::kF64, {0.75});
                Stream& stream = backend.compute_stream();
                backend.run(stream,
                            PowerSumArgs{.x = x, .spans = spans, .power = power, .out = sum});
                backend.run(
                    stream,
                    PowerSumArgs{
                        .x = x, .spans = spans, .power = power, .out = added, .accumulate = true});
                return std::vector<Values>{sum.to_doubles(), added.to_doubles()};
              },
              1, 1e-3);
        }
      }
    }
  });
}

TEST_CASE("power_sum of blocks: each to its place, the same bits wherever the block lies") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kNormTypes) {
      const auto run = [&](Backend& backend, int64_t shift) {
        const Tensor x = shifted_tensor(backend, {4000}, dtype, random_values(4000, 1), shift);
        Tensor out = Tensor::zeros(backend, {6}, DType::kF64);
        const std::vector<int64_t> first_blocks = {3, 1};
        backend.run(backend.compute_stream(), PowerSumArgs{.x = x,
                                                           .spans = {{0, 2100}, {2100, 3900}},
                                                           .power = 2,
                                                           .out = out,
                                                           .first_blocks = &first_blocks});
        return out.to_doubles();
      };
      CHECK(run(gpu, 0) == run(gpu, 1));
      cpu::CpuBackend cpu;
      CHECK(largest_error(run(gpu, 0), run(cpu, 0)) < 1e-6);
    }
  });
}

TEST_CASE("power_sum: one element that is not finite, anywhere, for every power") {
  on_gpu([](Backend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const double power : kPowers) {
        for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
          for (const size_t where : {0u, 999u, 2999u}) {
            Values values = random_values(3000, 1);
            values[where] = bad;
            Tensor sum = Tensor::empty(gpu, {}, DType::kF64);
            gpu.run(gpu.compute_stream(), PowerSumArgs{.x = make_tensor(gpu, {3000}, dtype, values),
                                                       .spans = {{0, 3000}},
                                                       .power = power,
                                                       .out = sum});
            CHECK(!std::isfinite(sum.item()));
          }
        }
      }
    }
  });
}

TEST_CASE("clip_coefficient gives norm, coefficient and skip of the CPU") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const double power : kPowers) {
      for (const double max_norm : {0.0, 1.0, 100.0}) {
        for (const double sum : {0.0, 17.0, kInfinity, std::nan("")}) {
          for (const int variant : {0, 1, 2}) {  // plain; scaled; scaled, with an overflow
            const auto run = [&](Backend& backend) {
              const Tensor total = make_tensor(backend, {}, DType::kF64, {sum});
              const Tensor scale = make_tensor(backend, {}, DType::kF32, {1024});
              const Tensor overflow = Tensor::from_host<int32_t>(backend, {}, {variant / 2});
              Tensor norm = Tensor::empty(backend, {}, DType::kF64);
              Tensor coefficient = Tensor::empty(backend, {}, DType::kF32);
              Tensor skip = Tensor::empty(backend, {}, DType::kI32);
              backend.run(backend.compute_stream(),
                          ClipArgs{.power_sum = total,
                                   .power = power,
                                   .max_norm = max_norm,
                                   .skip_above = max_norm == 1.0 ? 0.01 : kInfinity,
                                   .loss_scale = variant > 0 ? &scale : nullptr,
                                   .overflow = variant > 0 ? &overflow : nullptr,
                                   .norm = norm,
                                   .coefficient = coefficient,
                                   .skip = skip});
              return Values{norm.item(), coefficient.item(), skip.item()};
            };
            cpu::CpuBackend cpu;
            const Values actual = run(gpu), expected = run(cpu);
            CHECK(actual[2] == expected[2]);
            for (const size_t i : {0u, 1u}) {
              if (std::isnan(expected[i])) {
                CHECK(std::isnan(actual[i]));
              } else {
                CHECK(largest_error({actual[i]}, {expected[i]}, 0) < 1e-6);
              }
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
