// fill_zero, copies, advance_steps on a GPU; what is refused. add, cast, divide, fill_normal:
// calls_test.cpp.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

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
