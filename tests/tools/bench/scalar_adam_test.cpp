// The scalar loop that Adam's kernel is held against takes the same steps as the kernel, and the
// report says how much faster the kernel is.
// Requirements: S4.3.
#include "tools/bench/scalar_adam.h"

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"
#include "tools/bench/kernel_report.h"

namespace fsdp::tools {

TEST_CASE("scalar adam: the kernel's steps, to an ulp or so") {
  constexpr int64_t kSize = 1001;
  cpu::CpuBackend backend;
  const auto tensor = [&](uint64_t seed, double lowest) {
    return test::make_tensor(backend, Shape{kSize}, DType::kF32,
                             test::random_values(kSize, seed, lowest, 1));
  };
  Tensor master = tensor(1, -1), m = tensor(2, -1), v = tensor(3, 0);
  const Tensor grad = tensor(4, -1);
  const auto floats = [](const Tensor& x) {
    std::vector<float> out(static_cast<size_t>(x.numel()));
    x.read(out.data());
    return out;
  };
  std::vector<float> p = floats(master), first = floats(m), second = floats(v), g = floats(grad);
  const AdamNumbers k = {.learning_rate = 0.01f, .t = 3};
  scalar_adamw({p.data(), g.data(), first.data(), second.data(), kSize}, k);
  const std::vector<ShardSegment> segments = {{0, kSize, true, 0}};
  const Tensor steps = Tensor::from_host<int32_t>(backend, Shape{1}, {k.t});
  const Tensor present = Tensor::from_host<int32_t>(backend, Shape{1}, {1});
  const Tensor skip = Tensor::zeros(backend, Shape{}, DType::kI32);
  const Tensor rate = test::make_tensor(backend, Shape{}, DType::kF64, {0.01});
  const Tensor one = test::make_tensor(backend, Shape{}, DType::kF32, {1});
  const ShardUpdate shard = {.master = master,
                             .grad = grad,
                             .segments = segments,
                             .step_counts = steps,
                             .present = present,
                             .learning_rate = rate,
                             .gradient_scale = one,
                             .skip = skip,
                             .weight_decay = k.weight_decay};
  backend.run(
      backend.compute_stream(),
      UpdateArgs<rules::AdamW>{.shard = shard,
                               .state = {&m, &v},
                               .rule = {.beta1 = k.beta1, .beta2 = k.beta2, .epsilon = k.epsilon}});
  const std::vector<float> kernel = floats(master), kernel_m = floats(m), kernel_v = floats(v);
  for (size_t i = 0; i < kSize; ++i) {
    CHECK(p[i] == doctest::Approx(kernel[i]).epsilon(1e-6));
    CHECK(first[i] == doctest::Approx(kernel_m[i]).epsilon(1e-5));
    CHECK(second[i] == doctest::Approx(kernel_v[i]).epsilon(1e-6));
  }
}

TEST_CASE("scalar adam: the report says by how much the kernel is faster") {
  const auto spread = [](double s) { return Spread{s, s, s, s}; };
  KernelReport report;
  report.bench.rates = {.copy_bytes_per_s = 10e9, .product_flops_per_s = 1e12};
  report.bench.kernels = {{"adam decoupled", "9", {.bytes = 28}, {}, 1, 1, spread(1e-3)},
                          {kScalarAdam, "9", {.bytes = 28}, {}, 1, 1, spread(5.5e-3)}};
  CHECK(test::contains(
      format_kernels(report),
      "\nadam decoupled: 5.5 x the rate of a scalar loop on one thread, by fastest calls\n"));
  report.bench.kernels.pop_back();
  CHECK(!test::contains(format_kernels(report), "scalar loop"));
}

TEST_CASE("scalar adam: its line runs") {
  cpu::CpuBackend backend;
  KernelInputs inputs(backend);
  const KernelCase line = scalar_adam_line(2001);
  CHECK(line.name() == kScalarAdam);
  CHECK(line.call.cost.bytes == 28 * 2001);
  const KernelResult result = time_kernel(inputs, line, {.cache_bytes = 0, .seconds = 0.001});
  CHECK(result.seconds.median > 0);
}

}  // namespace fsdp::tools
