// GELU and SwiGLU against the C library in double, and their gradients against finite differences.
#include <numbers>

#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

constexpr Activation kKinds[] = {Activation::kGeluTanh, Activation::kGeluErf,
                                 Activation::kGeluBloom, Activation::kRelu};
constexpr int64_t kSizes[] = {0, 1, 7, 17, 1000, 40003};  // around vectors and the grain

double gelu(Activation kind, double x) {
  if (kind == Activation::kRelu) return std::max(x, 0.0);
  if (kind == Activation::kGeluErf) return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  const double root =
      kind == Activation::kGeluBloom ? 0.79788456 : std::sqrt(2 / std::numbers::pi);
  const double u = root * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

double silu(double x) { return x / (1 + std::exp(-x)); }

Values forward(Backend& backend, Activation kind, DType dtype, const Values& values) {
  const Tensor x = make_tensor(backend, {int64_t(values.size())}, dtype, values);
  Tensor y = Tensor::empty(backend, x.shape(), dtype);
  backend.activation_forward(backend.compute_stream(), kind, x, y);
  return y.to_doubles();
}

// dx overwrites dy.
Values backward(Backend& backend, Activation kind, DType dtype, const Values& values,
                const Values& gradient) {
  const Tensor x = make_tensor(backend, {int64_t(values.size())}, dtype, values);
  Tensor dy = make_tensor(backend, x.shape(), dtype, gradient);
  backend.activation_backward(backend.compute_stream(), kind, x, dy, dy);
  return dy.to_doubles();
}

TEST_CASE("gelu against the C library") {
  for (const DType dtype : kFloatingTypes) {
    for (const Activation kind : kKinds) {
      for (const int64_t n : kSizes) {
        const Values x = rounded(random_values(n, 1, -8, 8), dtype);
        const auto out = on_any_threads(
            [&](Backend& backend) { return std::vector<Values>{forward(backend, kind, dtype, x)}; });
        Values expected;
        for (const double value : x) expected.push_back(gelu(kind, value));
        CAPTURE(name_of(dtype));
        CHECK(largest_error(out[0], expected) < tolerance(dtype, 8));
      }
    }
  }
}

TEST_CASE("gelu of special values") {
  cpu::CpuBackend backend;
  for (const Activation kind : kKinds) {
    const Values y = forward(backend, kind, DType::kF32, {0, 1e30, -1e30, 40, -40, NAN});
    CHECK(y[0] == 0);
    CHECK(y[1] == double(1e30f));
    CHECK(y[2] == 0);
    CHECK(y[3] == 40);
    CHECK(y[4] == 0);
    CHECK(std::isnan(y[5]));
  }
  Tensor x = make_tensor(backend, {2}, DType::kF32, {1, 2});
  CHECK_THROWS_WITH_AS(
      backend.activation_forward(backend.compute_stream(), Activation::kNone, x, x),
      "[activation_forward] kind: expected an activation, got 0", Error);
}

TEST_CASE("gelu backward against finite differences, and every dtype against f64") {
  cpu::CpuBackend backend;
  for (const Activation kind : kKinds) {
    const Values x = random_values(61, 1, -6, 6), dy = random_values(61, 2);
    const auto loss = [&](const Values& values) {
      return dot(forward(backend, kind, DType::kF64, values), dy);
    };
    CHECK(largest_error(backward(backend, kind, DType::kF64, x, dy), finite_differences(x, loss)) <
          1e-9);
    for (const DType dtype : kFloatingTypes) {
      for (const int64_t n : kSizes) {
        const Values at = rounded(random_values(n, 3, -6, 6), dtype);
        const Values gradient = rounded(random_values(n, 4), dtype);
        const auto out = on_any_threads(
            [&](Backend& any) { return std::vector<Values>{backward(any, kind, dtype, at, gradient)}; });
        CHECK(largest_error(out[0], backward(backend, kind, DType::kF64, at, gradient)) <
              tolerance(dtype, 16));
      }
    }
  }
}

Values swiglu(Backend& backend, DType dtype, const Values& gate, const Values& up) {
  const Tensor g = make_tensor(backend, {int64_t(gate.size())}, dtype, gate);
  const Tensor u = make_tensor(backend, g.shape(), dtype, up);
  Tensor y = Tensor::empty(backend, g.shape(), dtype);
  backend.swiglu_forward(backend.compute_stream(), g, u, y);
  return y.to_doubles();
}

// {dgate, dup}; they overwrite gate and dy.
std::vector<Values> swiglu_backward(Backend& backend, DType dtype, const Values& gate,
                                    const Values& up, const Values& gradient) {
  Tensor g = make_tensor(backend, {int64_t(gate.size())}, dtype, gate);
  const Tensor u = make_tensor(backend, g.shape(), dtype, up);
  Tensor dy = make_tensor(backend, g.shape(), dtype, gradient);
  backend.swiglu_backward(backend.compute_stream(), g, u, dy, g, dy);
  return {g.to_doubles(), dy.to_doubles()};
}

TEST_CASE("swiglu forward and backward in every dtype") {
  cpu::CpuBackend backend;
  for (const DType dtype : kFloatingTypes) {
    for (const int64_t n : kSizes) {
      const Values gate = rounded(random_values(n, 1, -6, 6), dtype);
      const Values up = rounded(random_values(n, 2, -2, 2), dtype);
      const Values dy = rounded(random_values(n, 3), dtype);
      const auto out = on_any_threads([&](Backend& any) {
        auto results = swiglu_backward(any, dtype, gate, up, dy);
        results.push_back(swiglu(any, dtype, gate, up));
        return results;
      });
      Values expected;
      for (size_t i = 0; i < gate.size(); ++i) expected.push_back(silu(gate[i]) * up[i]);
      CHECK(largest_error(out[2], expected) < tolerance(dtype, 8));
      const auto exact = swiglu_backward(backend, DType::kF64, gate, up, dy);
      CHECK(largest_error(out[0], exact[0]) < tolerance(dtype, 16));
      CHECK(largest_error(out[1], exact[1]) < tolerance(dtype, 16));
    }
  }
}

TEST_CASE("swiglu backward against finite differences") {
  cpu::CpuBackend backend;
  const Values gate = random_values(31, 1, -6, 6), up = random_values(31, 2), dy(31, 0.7);
  const auto out = swiglu_backward(backend, DType::kF64, gate, up, dy);
  const auto gate_loss = [&](const Values& values) {
    return dot(swiglu(backend, DType::kF64, values, up), dy);
  };
  const auto up_loss = [&](const Values& values) {
    return dot(swiglu(backend, DType::kF64, gate, values), dy);
  };
  CHECK(largest_error(out[0], finite_differences(gate, gate_loss)) < 1e-9);
  CHECK(largest_error(out[1], finite_differences(up, up_loss)) < 1e-9);
}

}  // namespace
}  // namespace fsdp::test
