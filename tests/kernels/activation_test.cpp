// Activations and gated linear units against the C library in double, and their gradients against
// finite differences.
#include <numbers>

#include "core/layer_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

constexpr Activation kKinds[] = {
    Activation::kGeluTanh,    Activation::kGeluErf,     Activation::kGeluBloom, Activation::kRelu,
    Activation::kGeluFast,    Activation::kGeluClipped, Activation::kQuickGelu, Activation::kSilu,
    Activation::kReluSquared, Activation::kRelu6,       Activation::kLeakyRelu, Activation::kTanh,
    Activation::kSigmoid,     Activation::kMish,        Activation::kLaplace};
constexpr int64_t kSizes[] = {0, 1, 7, 17, 1000, 40003};  // around vectors and the grain

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double tanh_gelu(double root, double x) {
  return 0.5 * x * (1 + std::tanh(root * (x + 0.044715 * x * x * x)));
}

// As transformers' activations.py has them.
double exact(Activation kind, double x) {
  const double gelu = 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  switch (kind) {
    case Activation::kGeluTanh:
      return tanh_gelu(std::sqrt(2 / std::numbers::pi), x);
    case Activation::kGeluErf:
      return gelu;
    case Activation::kGeluBloom:
      return tanh_gelu(0.79788456, x);
    case Activation::kGeluFast:
      return tanh_gelu(0.7978845608, x);
    case Activation::kGeluClipped:
      return std::clamp(gelu, -10.0, 10.0);
    case Activation::kQuickGelu:
      return x * sigmoid(1.702 * x);
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kReluSquared:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kRelu6:
      return std::clamp(x, 0.0, 6.0);
    case Activation::kLeakyRelu:
      return x > 0 ? x : 0.01 * x;
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kMish:
      return x * std::tanh(std::log1p(std::exp(x)));
    case Activation::kLaplace:
      return 0.5 * (1 + std::erf((x - 0.707107) / (0.282095 * std::numbers::sqrt2)));
    case Activation::kNone:
      return x;
  }
  return NAN;
}

Values forward(Backend& backend, Activation kind, DType dtype, const Values& values) {
  const Tensor x = make_tensor(backend, {int64_t(values.size())}, dtype, values);
  Tensor y = Tensor::empty(backend, x.shape(), dtype);
  backend.run(backend.compute_stream(), ActivationForwardArgs{kind, x, y});
  return y.to_doubles();
}

// dx overwrites dy.
Values backward(Backend& backend, Activation kind, DType dtype, const Values& values,
                const Values& gradient) {
  const Tensor x = make_tensor(backend, {int64_t(values.size())}, dtype, values);
  Tensor dy = make_tensor(backend, x.shape(), dtype, gradient);
  backend.run(backend.compute_stream(), ActivationBackwardArgs{kind, x, dy, dy});
  return dy.to_doubles();
}

TEST_CASE("activations against the C library") {
  for (const DType dtype : kFloatingTypes) {
    for (const Activation kind : kKinds) {
      for (const int64_t n : kSizes) {
        const Values x = rounded(random_values(n, 1, -12, 12), dtype);
        const auto out = on_any_threads([&](Backend& backend) {
          return std::vector<Values>{forward(backend, kind, dtype, x)};
        });
        Values expected;
        for (const double value : x) expected.push_back(exact(kind, value));
        CAPTURE(name_of(dtype));
        CAPTURE(static_cast<int>(kind));
        CHECK(largest_error(out[0], expected) < tolerance(dtype, 8));
      }
    }
  }
}

TEST_CASE("activations of special values") {
  cpu::CpuBackend backend;
  const Values at = {0, 1e15, -1e15, 40, -40, NAN};
  for (const Activation kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    const Values y = forward(backend, kind, DType::kF32, at);
    for (size_t i = 0; i < 5; ++i) {
      const double expected = i == 2 && kind != Activation::kLeakyRelu
                                  ? (kind == Activation::kTanh ? -1 : 0)
                                  : exact(kind, double(float(at[i])));
      CHECK(std::abs(y[i] - expected) <= 1e-6 * std::abs(expected) + 1e-8);
    }
    CHECK(std::isnan(y[5]));
    const Values dy(6, 1.0), dx = backward(backend, kind, DType::kF64, at, dy);
    for (size_t i = 0; i < 5; ++i) CHECK(std::isfinite(dx[i]));
  }
  Tensor x = make_tensor(backend, {2}, DType::kF32, {1, 2});
  CHECK_THROWS_WITH_AS(
      backend.run(backend.compute_stream(), ActivationForwardArgs{Activation::kNone, x, x}),
      "[activation_forward] kind: expected an activation, got none", Error);
}

// gradient[i] times the slope of f's element i over element i of `at`, by central differences.
template <typename F>
Values element_differences(const Values& at, const Values& gradient, F f) {
  constexpr double kStep = 1e-5;
  Values above = at, below = at;
  for (double& value : above) value += kStep;
  for (double& value : below) value -= kStep;
  Values out = f(above);
  const Values low = f(below);
  for (size_t i = 0; i < at.size(); ++i) out[i] = gradient[i] * (out[i] - low[i]) / (2 * kStep);
  return out;
}

TEST_CASE("activations backward with the sums over rows: the bits of the two kernels one by one") {
  for (const DType dtype : kFloatingTypes) {
    for (const Activation kind : {Activation::kGeluTanh, Activation::kGeluErf, Activation::kMish}) {
      for (const Shape& shape : {Shape{1, 1}, Shape{0, 5}, Shape{6, 513}, Shape{71, 1100}}) {
        const Values x = rounded(random_values(shape.numel(), 1, -6, 6), dtype);
        const Values dy = rounded(random_values(shape.numel(), 2), dtype);
        const Values before = random_values(shape.last(), 3);
        on_any_threads([&](Backend& backend) {
          Stream& stream = backend.compute_stream();
          const Tensor at = make_tensor(backend, shape, dtype, x);
          Tensor one = make_tensor(backend, shape, dtype, dy);
          Tensor two = make_tensor(backend, shape, dtype, dy);
          const DType wide = accumulation_dtype(dtype);
          std::vector<Values> out;
          for (const bool accumulate : {false, true}) {
            Tensor sums = make_tensor(backend, {shape.last()}, wide, before);
            Tensor expected = make_tensor(backend, {shape.last()}, wide, before);
            backend.run(stream, ActivationBackwardArgs{.kind = kind,
                                                       .x = at,
                                                       .dy = one,
                                                       .dx = one,
                                                       .dbias = &sums,
                                                       .accumulate_bias = accumulate});
            backend.run(stream,
                        ActivationBackwardArgs{.kind = kind, .x = at, .dy = two, .dx = two});
            backend.run(stream, SumRowsArgs{.x = two, .out = expected, .accumulate = accumulate});
            CHECK(one.to_doubles() == two.to_doubles());
            CHECK(sums.to_doubles() == expected.to_doubles());
            out.push_back(sums.to_doubles());
          }
          return out;
        });
      }
    }
  }
}

TEST_CASE("activations backward against finite differences, and every dtype against f64") {
  cpu::CpuBackend backend;
  for (const Activation kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    const Values x = random_values(61, 1, -12, 12), dy = random_values(61, 2);
    const Values expected = element_differences(
        x, dy, [&](const Values& values) { return forward(backend, kind, DType::kF64, values); });
    CHECK(largest_error(backward(backend, kind, DType::kF64, x, dy), expected) < 1e-9);
    for (const DType dtype : kFloatingTypes) {
      for (const int64_t n : kSizes) {
        const Values at = rounded(random_values(n, 3, -6, 6), dtype);
        const Values gradient = rounded(random_values(n, 4), dtype);
        const auto out = on_any_threads([&](Backend& any) {
          return std::vector<Values>{backward(any, kind, dtype, at, gradient)};
        });
        CHECK(largest_error(out[0], backward(backend, kind, DType::kF64, at, gradient)) <
              tolerance(dtype, 16));
      }
    }
  }
}

Values glu(Backend& backend, Activation kind, DType dtype, const Values& gate, const Values& up) {
  const Tensor g = make_tensor(backend, {int64_t(gate.size())}, dtype, gate);
  const Tensor u = make_tensor(backend, g.shape(), dtype, up);
  Tensor y = Tensor::empty(backend, g.shape(), dtype);
  backend.run(backend.compute_stream(), GluForwardArgs{kind, g, &u, y});
  return y.to_doubles();
}

// {dgate, dup}; they overwrite gate and dy.
std::vector<Values> glu_backward(Backend& backend, Activation kind, DType dtype, const Values& gate,
                                 const Values& up, const Values& gradient) {
  Tensor g = make_tensor(backend, {int64_t(gate.size())}, dtype, gate);
  const Tensor u = make_tensor(backend, g.shape(), dtype, up);
  Tensor dy = make_tensor(backend, g.shape(), dtype, gradient);
  backend.run(backend.compute_stream(), GluBackwardArgs{kind, g, &u, dy, g, &dy});
  return {g.to_doubles(), dy.to_doubles()};
}

std::vector<Activation> gates() {
  std::vector<Activation> all(std::begin(kKinds), std::end(kKinds));
  all.push_back(Activation::kNone);
  return all;
}

TEST_CASE("gated linear units forward and backward in every dtype") {
  cpu::CpuBackend backend;
  for (const Activation kind : gates()) {
    CAPTURE(static_cast<int>(kind));
    for (const DType dtype : kFloatingTypes) {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{17}, int64_t{1000}}) {
        const Values gate = rounded(random_values(n, 1, -6, 6), dtype);
        const Values up = rounded(random_values(n, 2, -2, 2), dtype);
        const Values dy = rounded(random_values(n, 3), dtype);
        const auto out = on_any_threads([&](Backend& any) {
          auto results = glu_backward(any, kind, dtype, gate, up, dy);
          results.push_back(glu(any, kind, dtype, gate, up));
          return results;
        });
        Values expected;
        for (size_t i = 0; i < gate.size(); ++i) expected.push_back(exact(kind, gate[i]) * up[i]);
        CHECK(largest_error(out[2], expected) < tolerance(dtype, 8));
        const auto wide = glu_backward(backend, kind, DType::kF64, gate, up, dy);
        // What is multiplied by up, which reaches 2, has rounded more often.
        const double terms = kind == Activation::kSilu ? 16 : 32;
        CHECK(largest_error(out[0], wide[0]) < tolerance(dtype, terms));
        CHECK(largest_error(out[1], wide[1]) < tolerance(dtype, terms));
      }
    }
  }
}

// Row by row gate and up.
Values in_rows(const Values& gate, const Values& up, size_t width) {
  Values out;
  for (size_t row = 0; row < gate.size(); row += width) {
    for (const Values* half : {&gate, &up}) {
      out.insert(out.end(), half->begin() + static_cast<long>(row),
                 half->begin() + static_cast<long>(row + width));
    }
  }
  return out;
}

TEST_CASE("gated linear units of halves of rows have the bits of two tensors") {
  for (const Activation kind : {Activation::kSilu, Activation::kGeluTanh, Activation::kNone}) {
    for (const DType dtype : kFloatingTypes) {
      for (const size_t width : {1, 17, 512, 1300}) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(name_of(dtype));
        CAPTURE(width);
        const auto n = static_cast<int64_t>(30 * width);
        const Values gate = rounded(random_values(n, 1, -6, 6), dtype);
        const Values up = rounded(random_values(n, 2, -2, 2), dtype);
        const Values gradient = rounded(random_values(n, 3), dtype);
        const auto out = on_any_threads([&](Backend& any) {
          const Shape rows = {30, static_cast<int64_t>(width)};
          const Tensor dy = make_tensor(any, rows, dtype, gradient);
          Tensor both = make_tensor(any, Shape{30, 2 * rows[1]}, dtype, in_rows(gate, up, width));
          Tensor y = Tensor::empty(any, rows, dtype);
          Stream& stream = any.compute_stream();
          any.run(stream, GluForwardArgs{kind, both, nullptr, y});
          any.run(stream, GluBackwardArgs{kind, both, nullptr, dy, both, nullptr});
          return std::vector<Values>{y.to_doubles(), both.to_doubles()};
        });
        cpu::CpuBackend backend;
        const auto apart = glu_backward(backend, kind, dtype, gate, up, gradient);
        CHECK(out[0] == glu(backend, kind, dtype, gate, up));
        CHECK(out[1] == in_rows(apart[0], apart[1], width));
      }
    }
  }
}

TEST_CASE("gated linear units backward against finite differences") {
  cpu::CpuBackend backend;
  for (const Activation kind : gates()) {
    CAPTURE(static_cast<int>(kind));
    const Values gate = random_values(31, 1, -6, 6), up = random_values(31, 2), dy(31, 0.7);
    const auto out = glu_backward(backend, kind, DType::kF64, gate, up, dy);
    const Values by_gate = element_differences(gate, dy, [&](const Values& values) {
      return glu(backend, kind, DType::kF64, values, up);
    });
    const Values by_up = element_differences(up, dy, [&](const Values& values) {
      return glu(backend, kind, DType::kF64, gate, values);
    });
    CHECK(largest_error(out[0], by_gate) < 1e-9);
    CHECK(largest_error(out[1], by_up) < 1e-9);
  }
}

}  // namespace
}  // namespace fsdp::test
