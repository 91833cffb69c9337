// GELU, ReLU and SwiGLU on a GPU, forward and backward, against the CPU backend (which is tested
// against the C library and finite differences).
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

constexpr Activation kKinds[] = {Activation::kGeluTanh, Activation::kGeluErf,
                                 Activation::kGeluBloom, Activation::kRelu};

TEST_CASE("activations forward and backward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Activation kind : kKinds) {
        for (const int64_t n : kGpuSizes) {
          for (const int64_t offset : {0, 1}) {
            check_against_cpu(gpu, dtype, [&](Backend& backend) {
              const Tensor x =
                  shifted_tensor(backend, {n}, dtype, random_values(n, 1, -8, 8), offset);
              Tensor dy = shifted_tensor(backend, {n}, dtype, random_values(n, 2), offset);
              Tensor y = Tensor::empty(backend, {n}, dtype),
                     dx = Tensor::empty(backend, {n}, dtype);
              backend.activation_forward(backend.compute_stream(), kind, x, y);
              backend.activation_backward(backend.compute_stream(), kind, x, dy, dx);
              backend.activation_backward(backend.compute_stream(), kind, x, dy, dy);  // in place
              return std::vector<Values>{y.to_doubles(), dx.to_doubles(), dy.to_doubles()};
            });
          }
        }
      }
    }
  });
}

TEST_CASE("activations of special values") {
  on_gpu([](Backend& gpu) {
    for (const Activation kind : kKinds) {
      const Tensor x = make_tensor(gpu, {6}, DType::kF32, {0, 1e30, -1e30, 40, -40, NAN});
      Tensor y = Tensor::empty(gpu, {6}, DType::kF32);
      gpu.activation_forward(gpu.compute_stream(), kind, x, y);
      const Values out = y.to_doubles();
      CHECK(out[0] == 0);
      CHECK(out[1] == double(1e30f));
      CHECK(out[2] == 0);
      CHECK(out[3] == 40);
      CHECK(out[4] == 0);
      CHECK(std::isnan(out[5]));
    }
  });
}

TEST_CASE("swiglu forward and backward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const int64_t n : kGpuSizes) {
        for (const int64_t offset : {0, 1}) {
          check_against_cpu(gpu, dtype, [&](Backend& backend) {
            Stream& stream = backend.compute_stream();
            const auto tensor = [&](uint64_t seed, double range) {
              return shifted_tensor(backend, {n}, dtype, random_values(n, seed, -range, range),
                                    offset);
            };
            Tensor gate = tensor(1, 8);
            const Tensor up = tensor(2, 1);
            Tensor dy = tensor(3, 1), y = Tensor::empty(backend, {n}, dtype);
            backend.swiglu_forward(stream, gate, up, y);
            backend.swiglu_backward(stream, gate, up, dy, gate, dy);  // over its operands
            return std::vector<Values>{y.to_doubles(), gate.to_doubles(), dy.to_doubles()};
          });
        }
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
