// Loss scaling on a GPU: flags and states exactly as on the CPU backend.
#include <cmath>

#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

TEST_CASE("find_overflow: what is not finite or beyond the limit, wherever it is") {
  on_gpu([](Backend& gpu) {
    const auto flag_after = [&](const Tensor& x, double limit, int32_t before) {
      Tensor flag = Tensor::from_host<int32_t>(gpu, {}, {before});
      gpu.run(gpu.compute_stream(), OverflowArgs{.x = x, .limit = limit, .flag = flag});
      return static_cast<int32_t>(flag.item());
    };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const DType dtype : kGpuTypes) {
      for (const int64_t n : {1, 17, 600}) {
        for (const int64_t offset : {0, 1}) {
          const Values values(static_cast<size_t>(n), 1024);
          const Tensor clean = shifted_tensor(gpu, {n}, dtype, values, offset);
          CHECK(flag_after(clean, 1024, 0) == 0);
          CHECK(flag_after(clean, 1024, 1) == 1);  // never cleared
          for (const double bad : {kInfinity, -kInfinity, std::nan(""), 1032.0, -2048.0}) {
            for (const int64_t where : {int64_t{0}, n / 2, n - 1}) {
              Values spoilt = values;
              spoilt[static_cast<size_t>(where)] = bad;
              CHECK(flag_after(shifted_tensor(gpu, {n}, dtype, spoilt, offset), 1024, 0) == 1);
            }
          }
        }
      }
      const double largest = largest_finite(dtype);
      const Tensor x = make_tensor(gpu, {2}, dtype, {largest, -largest});
      CHECK(flag_after(x, largest_finite(DType::kF64), 0) == 0);
      CHECK(flag_after(x, largest, 0) == 0);
    }
  });
}

TEST_CASE("update_loss_scale follows its rule as on the CPU, step by step") {
  const LossScaleRule rules[] = {{.interval = 3},
                                 {.backoff = 0.25, .interval = 4, .tolerance = 0.3, .floor = 0.5},
                                 {.growth = 1.5, .interval = 2, .minimum = 8},
                                 {.growth = 1e30, .interval = 1}};
  const std::vector<int32_t> overflows = {0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0};
  on_gpu([&](Backend& gpu) {
    cpu::CpuBackend cpu;
    for (const LossScaleRule& rule : rules) {
      const auto run = [&](Backend& backend) {
        Tensor scale = make_tensor(backend, {}, DType::kF32, {64});
        Tensor counters = Tensor::zeros(backend, {3}, DType::kI32);
        Tensor aborted = Tensor::zeros(backend, {}, DType::kI32);
        std::vector<Values> history;
        for (const int32_t overflow : overflows) {
          backend.run(backend.compute_stream(),
                      LossScaleArgs{.rule = rule,
                                    .overflow = Tensor::from_host<int32_t>(backend, {}, {overflow}),
                                    .scale = scale,
                                    .counters = counters,
                                    .aborted = aborted});
          history.push_back({scale.item(), aborted.item()});
          for (const int32_t count : counters.to_host<int32_t>()) history.back().push_back(count);
        }
        return history;
      };
      CHECK(run(gpu) == run(cpu));
    }
  });
}

}  // namespace
}  // namespace fsdp::test
