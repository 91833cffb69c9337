// Activations and gated linear units on a GPU, forward and backward, against the CPU backend (which
// is tested against the C library and finite differences).
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

constexpr Activation kOwnKernels[] = {Activation::kGeluTanh, Activation::kGeluErf,
                                      Activation::kGeluBloom, Activation::kRelu};
// Of one kernel, which asks for the activation when it runs.
constexpr Activation kChosen[] = {
    Activation::kGeluFast,    Activation::kGeluClipped, Activation::kQuickGelu, Activation::kSilu,
    Activation::kReluSquared, Activation::kRelu6,       Activation::kLeakyRelu, Activation::kTanh,
    Activation::kSigmoid,     Activation::kMish,        Activation::kLaplace};

void check_activation(cuda::CudaBackend& gpu, DType dtype, Activation kind, int64_t n,
                      int64_t offset) {
  CAPTURE(static_cast<int>(kind));
  check_against_cpu(gpu, dtype, [&](Backend& backend) {
    const Tensor x = shifted_tensor(backend, {n}, dtype, random_values(n, 1, -12, 12), offset);
    Tensor dy = shifted_tensor(backend, {n}, dtype, random_values(n, 2), offset);
    Tensor y = Tensor::empty(backend, {n}, dtype), dx = Tensor::empty(backend, {n}, dtype);
    backend.run(backend.compute_stream(), ActivationForwardArgs{kind, x, y});
    backend.run(backend.compute_stream(), ActivationBackwardArgs{kind, x, dy, dx});
    backend.run(backend.compute_stream(), ActivationBackwardArgs{kind, x, dy, dy});  // in place
    return std::vector<Values>{y.to_doubles(), dx.to_doubles(), dy.to_doubles()};
  });
}

TEST_CASE("activations forward and backward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const int64_t offset : {0, 1}) {
        for (const Activation kind : kOwnKernels) {
          for (const int64_t n : kGpuSizes) check_activation(gpu, dtype, kind, n, offset);
        }
        for (const Activation kind : kChosen) check_activation(gpu, dtype, kind, 2049, offset);
      }
    }
  });
}

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
    std::vector<Activation> kinds(std::begin(kOwnKernels), std::end(kOwnKernels));
    kinds.insert(kinds.end(), std::begin(kChosen), std::end(kChosen));
    for (const Activation kind : kinds) {
      CAPTURE(static_cast<int>(kind));
      const Values y = run(gpu, kind), expected = run(cpu, kind);
      for (size_t i = 0; i < 5; ++i) {
        CHECK(std::abs(y[i] - expected[i]) <= 1e-6 * std::abs(expected[i]) + 1e-7);
      }
      CHECK(std::isnan(y[5]));
    }
  });
}

void check_glu(cuda::CudaBackend& gpu, DType dtype, Activation kind, int64_t n, int64_t offset) {
  CAPTURE(static_cast<int>(kind));
  check_against_cpu(gpu, dtype, [&](Backend& backend) {
    Stream& stream = backend.compute_stream();
    const auto tensor = [&](uint64_t seed, double range) {
      return shifted_tensor(backend, {n}, dtype, random_values(n, seed, -range, range), offset);
    };
    Tensor gate = tensor(1, 8);
    const Tensor up = tensor(2, 1);
    Tensor dy = tensor(3, 1), y = Tensor::empty(backend, {n}, dtype);
    backend.run(stream, GluForwardArgs{kind, gate, up, y});
    backend.run(stream, GluBackwardArgs{kind, gate, up, dy, gate, dy});  // over its operands
    return std::vector<Values>{y.to_doubles(), gate.to_doubles(), dy.to_doubles()};
  });
}

TEST_CASE("gated linear units forward and backward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const int64_t offset : {0, 1}) {
        for (const int64_t n : kGpuSizes) check_glu(gpu, dtype, Activation::kSilu, n, offset);
        for (const Activation kind : kOwnKernels) check_glu(gpu, dtype, kind, 257, offset);
        for (const Activation kind : kChosen) check_glu(gpu, dtype, kind, 257, offset);
        check_glu(gpu, dtype, Activation::kNone, 257, offset);
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
