// Activations of special values on a GPU against the CPU backend. Others: calls_test.cpp.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

constexpr Activation kKinds[] = {
    Activation::kGeluTanh,    Activation::kGeluErf,     Activation::kGeluBloom, Activation::kRelu,
    Activation::kGeluFast,    Activation::kGeluClipped, Activation::kQuickGelu, Activation::kSilu,
    Activation::kReluSquared, Activation::kRelu6,       Activation::kLeakyRelu, Activation::kTanh,
    Activation::kSigmoid,     Activation::kMish,        Activation::kLaplace};

TEST_CASE("activations of special values") {
  on_gpu([](Backend& gpu) {
    const Values at = {0, 1e15, -1e15, 40, -40, NAN};
    cpu::CpuBackend cpu;
    const auto run = [&](Backend& backend, Activation kind) {
      const Tensor x = make_tensor(backend, {6}, DType::kF32, at);
      Tensor y = Tensor::empty(backend, {6}, DType::kF32);
      backend.run(backend.compute_stream(), ActivationForwardArgs{kind, x, y});
      Tensor dx = make_tensor(backend, {6}, DType::kF32, {1, 1, 1, 1, 1, 1});
      backend.run(backend.compute_stream(), ActivationBackwardArgs{kind, x, dx, dx});
      for (const double slope : {dx.to_doubles()[1], dx.to_doubles()[2]}) {
        CHECK((&backend == &cpu || std::isfinite(slope)));
      }
      return y.to_doubles();
    };
    for (const Activation kind : kKinds) {
      CAPTURE(static_cast<int>(kind));
      const Values y = run(gpu, kind), expected = run(cpu, kind);
      for (size_t i = 0; i < 5; ++i) {
        CHECK(std::abs(y[i] - expected[i]) <= 1e-6 * std::abs(expected[i]) + 1e-7);
      }
      CHECK(std::isnan(y[5]));
    }
  });
}

}  // namespace
}  // namespace fsdp::test
