// AdamW's update as one thread takes it without vector instructions: an independent reference for
// the steps of the CPU's kernel, and the yardstick of its speed. Its formulas, with segments and
// other dtypes: shard_update_test.cpp.
// Requirements: S4.3.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>

#include <doctest/doctest.h>

#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

struct AdamElements {
  float* master;
  const float* grad;
  float* exp_avg;
  float* exp_avg_sq;
  int64_t n;
};
struct AdamNumbers {
  float learning_rate = 0.01f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f;
  int t = 3;
};

// Formulas: core/optimizer_rules/adam.h, AdamW.
__attribute__((optimize("O3", "no-tree-vectorize"))) void scalar_adamw(const AdamElements& e,
                                                                       const AdamNumbers& k) {
  const float keep = 1 - k.learning_rate * k.weight_decay;
  const float step = k.learning_rate / (1 - std::pow(k.beta1, static_cast<float>(k.t)));
  const float root = std::sqrt(1 - std::pow(k.beta2, static_cast<float>(k.t)));
  for (int64_t i = 0; i < e.n; ++i) {
    const float g = e.grad[i];
    const float m = e.exp_avg[i] + (1 - k.beta1) * (g - e.exp_avg[i]);
    const float v = k.beta2 * e.exp_avg_sq[i] + (1 - k.beta2) * g * g;
    e.exp_avg[i] = m;
    e.exp_avg_sq[i] = v;
    e.master[i] = e.master[i] * keep - step * (m / (std::sqrt(v) / root + k.epsilon));
  }
}

// The same elements for the loop and for the kernel.
struct BothAdams {
  explicit BothAdams(int64_t size) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      // The squares are not negative.
      tensors[i] = test::make_tensor(backend, Shape{size}, DType::kF32,
                                     test::random_values(size, i + 1, i == 3 ? 0 : -1, 1));
      values[i].resize(static_cast<size_t>(size));
      tensors[i].read(values[i].data());
    }
    segments = {{0, size, true, 0}};
  }
  void run_loop() {
    scalar_adamw({values[0].data(), values[1].data(), values[2].data(), values[3].data(),
                  static_cast<int64_t>(values[0].size())},
                 k);
  }
  void run_kernel() {
    const ShardUpdate shard = {.master = tensors[0],
                               .grad = tensors[1],
                               .segments = segments,
                               .step_counts = steps,
                               .present = present,
                               .learning_rate = rate,
                               .gradient_scale = one,
                               .skip = skip,
                               .weight_decay = k.weight_decay};
    backend.run(backend.compute_stream(),
                UpdateArgs<rules::AdamW>{
                    .shard = shard,
                    .state = {&tensors[2], &tensors[3]},
                    .rule = {.beta1 = k.beta1, .beta2 = k.beta2, .epsilon = k.epsilon}});
    backend.record(backend.compute_stream())->wait();
  }

  cpu::CpuBackend backend;
  AdamNumbers k;
  std::array<Tensor, 4> tensors;  // master, grad, exp_avg, exp_avg_sq
  std::array<std::vector<float>, 4> values;
  std::vector<ShardSegment> segments;
  Tensor steps = Tensor::from_host<int32_t>(backend, Shape{1}, {k.t});
  Tensor present = Tensor::from_host<int32_t>(backend, Shape{1}, {1});
  Tensor skip = Tensor::zeros(backend, Shape{}, DType::kI32);
  Tensor rate = test::make_tensor(backend, Shape{}, DType::kF64, {0.01});
  Tensor one = test::make_tensor(backend, Shape{}, DType::kF32, {1});
};

// Seconds. Other programs on the machine only add.
double fastest_of(int calls, const std::function<void()>& call) {
  double least = INFINITY;
  for (int i = 0; i < calls; ++i) {
    const auto began = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    least = std::min(least, took.count());
  }
  return least;
}

TEST_CASE("scalar adam: the kernel's steps, to an ulp or so") {
  BothAdams both(1001);
  both.run_loop();
  both.run_kernel();
  for (const size_t part : {0, 2, 3}) {
    std::vector<float> kernel(1001);
    both.tensors[part].read(kernel.data());
    for (size_t i = 0; i < kernel.size(); ++i) {
      CHECK(both.values[part][i] == doctest::Approx(kernel[i]).epsilon(part == 2 ? 1e-5 : 1e-6));
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they slow the kernel more
TEST_CASE("scalar adam: the kernel's one thread is faster than the loop") {
  BothAdams both(int64_t{1} << 18);
  const double loop = fastest_of(20, [&] { both.run_loop(); });
  const double kernel = fastest_of(20, [&] { both.run_kernel(); });
  std::printf("adamw: %.1f x the rate of a scalar loop on one thread, by fastest calls\n",
              loop / kernel);
  CHECK(kernel < loop);
}
#endif

}  // namespace
}  // namespace fsdp
