// Linear layers: every gradient against finite differences, memory, bf16, checks. Values:
// tests/kernels/matmul_test.cpp.
#include "core/ops/linear.h"

#include <cmath>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using ops::WeightLayout;
using test::error_of;

struct Case {
  Shape x;
  int64_t out;
  WeightLayout layout;
  bool bias;
  Activation activation;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
    for (const bool bias : {false, true}) {
      for (const Activation activation :
           {Activation::kNone, Activation::kGeluTanh, Activation::kGeluErf}) {
        all.push_back({Shape{2, 3, 5}, 7, layout, bias, activation});
      }
    }
  }
  all.push_back({Shape{1, 1}, 1, WeightLayout::kOutIn, true, Activation::kNone});
  all.push_back({Shape{17, 33}, 9, WeightLayout::kInOut, true, Activation::kGeluTanh});
  return all;
}

Shape weight_shape(const Case& c) {
  const int64_t in = c.x.last();
  return c.layout == WeightLayout::kOutIn ? Shape{c.out, in} : Shape{in, c.out};
}

TEST_CASE("linear: gradients of input, weight and bias against finite differences") {
  cpu::CpuBackend backend;
  for (const Case& c : cases()) {
    CAPTURE(c.x.str());
    CAPTURE(static_cast<int>(c.activation));
    test::GradientCheck check(backend);
    check.input("x", c.x);
    Parameter& w = check.parameter("w", weight_shape(c));
    Parameter* b = c.bias ? &check.parameter("b", Shape{c.out}) : nullptr;
    check.run([&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{
          ops::linear(in[0], {.weight = w, .bias = b, .layout = c.layout}, c.activation)};
    });
  }
}

TEST_CASE("linear: bf16 gradients stay close to those in f64 and are as wide as asked") {
  cpu::CpuBackend backend;
  std::vector<std::vector<double>> dw, dx;
  for (const DType dtype : {DType::kF64, DType::kBF16}) {
    Tape tape(backend);
    const auto random = [&](Shape shape, uint64_t seed) {  // bf16 values in both
      return test::make_tensor(
          backend, shape, dtype,
          test::rounded(test::random_values(shape.numel(), seed), DType::kBF16));
    };
    Parameter w("w", Shape{7, 5}, {}, true);
    w.set_value(random(w.shape(), 2));
    w.set_tape(&tape);
    const test::Leaf x(tape, random(Shape{6, 5}, 1));
    tape.backward(ops::linear(x.value(), {.weight = w}, Activation::kGeluTanh),
                  random(Shape{6, 7}, 3));
    CHECK(w.gradient().dtype() == accumulation_dtype(dtype));
    CHECK(x.gradient().dtype() == dtype);
    dw.push_back(w.gradient().to_doubles());
    dx.push_back(x.gradient().to_doubles());
  }
  for (size_t i = 0; i < dw[0].size(); ++i) CHECK(std::abs(dw[1][i] - dw[0][i]) < 0.03);
  for (size_t i = 0; i < dx[0].size(); ++i) CHECK(std::abs(dx[1][i] - dx[0][i]) < 0.03);
}

TEST_CASE("linear: frozen parameters and inputs get no gradient and cost no product") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Parameter w("w", Shape{4, 3}, {}, true), b("b", Shape{4}, {}, false);
  for (Parameter* p : {&w, &b}) {
    p->set_value(test::random_tensor(backend, p->shape(), DType::kF64, 2));
    p->set_tape(&tape);
  }
  const Tensor x = test::random_tensor(backend, Shape{5, 3}, DType::kF64, 1);
  const Tensor dy = test::random_tensor(backend, Shape{5, 4}, DType::kF64, 3);
  w.set_trainable(false);
  tape.backward(ops::linear(x, {.weight = w, .bias = &b}), dy);
  CHECK_FALSE(w.gradient().defined());
  CHECK(w.pending_uses() == 0);
  CHECK(b.gradient().defined());
  b.set_trainable(false);
  CHECK_FALSE(ops::linear(x, {.weight = w, .bias = &b}).requires_grad());
  const test::Leaf leaf(tape, x);
  tape.backward(ops::linear(leaf.value(), {.weight = w, .bias = &b}), dy);
  CHECK(leaf.gradient().defined());
}

TEST_CASE("linear: saves its input by reference, and the pre-activation when there is one") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Parameter w("w", Shape{100, 64}, {}, true);
  w.set_value(test::random_tensor(backend, w.shape(), DType::kF32, 2));
  w.set_tape(&tape);
  const auto activations = [&] {
    return backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kActivation)];
  };
  const Tensor x = Tensor::zeros(backend, Shape{8, 64}, DType::kF32);
  const size_t before = activations();
  const size_t y_bytes = rounded_bytes(8 * 100 * 4);
  {
    const Tensor y = ops::linear(x, {.weight = w});
    CHECK(activations() - before == y_bytes);
    const Tensor z = ops::linear(x, {.weight = w}, Activation::kGeluErf);
    CHECK(activations() - before == 3 * y_bytes);
  }
  CHECK(activations() == before);
}

TEST_CASE("linear: wrong shapes and dtypes are named") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::zeros(backend, Shape{2, 5}, DType::kF32);
  Parameter w("blocks.0.mlp.up.weight", Shape{7, 4}, {}, true), b("bias", Shape{6}, {}, false);
  w.set_value(Tensor::zeros(backend, w.shape(), DType::kF32));
  b.set_value(Tensor::zeros(backend, b.shape(), DType::kF32));
  CHECK(error_of([&] { ops::linear(x, {.weight = w}); }) ==
        "[linear] weight blocks.0.mlp.up.weight: expected 5 inputs, got (7, 4)");
  CHECK(error_of([&] { ops::linear(x, {.weight = b}); }) ==
        "[linear] weight bias: expected rank 2, got (6)");
  const Tensor four = Tensor::zeros(backend, Shape{2, 4}, DType::kF32);
  CHECK(error_of([&] { ops::linear(four, {.weight = w, .bias = &b}); }) ==
        "[linear] bias: expected (7), got (6)");
  const Tensor half = Tensor::zeros(backend, Shape{2, 4}, DType::kBF16);
  CHECK(error_of([&] { ops::linear(half, {.weight = w}); }) ==
        "[linear] blocks.0.mlp.up.weight: expected bf16, got f32");
}

// ---------------------------------------------------------------------------- Several at once

std::vector<ops::LinearWeights> layers_of(const std::vector<Parameter*>& weights,
                                          const std::vector<Parameter*>& biases) {
  std::vector<ops::LinearWeights> layers;
  for (size_t i = 0; i < weights.size(); ++i) {
    layers.push_back({.weight = *weights[i], .bias = biases.empty() ? nullptr : biases[i]});
  }
  return layers;
}

TEST_CASE("linear: layers side by side, their gradients against finite differences") {
  cpu::CpuBackend backend;
  for (const bool bias : {false, true}) {
    CAPTURE(bias);
    test::GradientCheck check(backend);
    check.input("x", Shape{2, 3, 5});
    const auto weights = check.side_by_side("w", {Shape{7, 5}, Shape{2, 5}, Shape{3, 5}});
    std::vector<Parameter*> biases;
    if (bias) biases = check.side_by_side("b", {Shape{7}, Shape{2}, Shape{3}});
    const auto layers = layers_of(weights, biases);
    const auto once = [&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{ops::linear(in[0], layers)};
    };
    const auto twice = [&](const std::vector<Tensor>& in) {  // the second use adds
      return std::vector<Tensor>{ops::linear(in[0], layers), ops::linear(in[0], layers)};
    };
    check.run(once);
    check.run(twice);
    for (Parameter* w : weights) w->set_trainable(false);
    check.run(once);
  }
}

TEST_CASE("linear: layers side by side give what each gives, in one product for each purpose") {
  cpu::CpuBackend cpu;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    CAPTURE(name_of(dtype));
    const Tensor values = test::random_tensor(cpu, Shape{12, 5}, dtype, 2);
    Parameter a("a", Shape{7, 5}, {}, true), b("b", Shape{5, 5}, {}, true);
    a.set_value(values.slice(0, a.shape()));
    b.set_value(values.slice(35, b.shape()));
    const Tensor x = test::random_tensor(cpu, Shape{2, 3, 5}, dtype, 1);
    const std::vector<double> both = ops::linear(x, layers_of({&a, &b}, {})).to_doubles();
    const std::vector<double> of_a = ops::linear(x, {.weight = a}).to_doubles();
    const std::vector<double> of_b = ops::linear(x, {.weight = b}).to_doubles();
    for (size_t row = 0; row < 6; ++row) {
      for (size_t i = 0; i < 12; ++i) {
        const double expected = i < 7 ? of_a[row * 7 + i] : of_b[row * 5 + i - 7];
        CHECK(std::abs(both[row * 12 + i] - expected) <= 16 * test::unit_roundoff(dtype));
      }
    }
  }
}

TEST_CASE("linear: what is side by side") {
  cpu::CpuBackend backend;
  const Tensor values = test::random_tensor(backend, Shape{100}, DType::kF32, 2);
  Parameter a("a", Shape{4, 5}, {}, true), b("b", Shape{2, 5}, {}, true);
  Parameter a_bias("a.bias", Shape{4}, {}, false), b_bias("b.bias", Shape{2}, {}, false);
  a.set_value(values.slice(0, a.shape()));
  b.set_value(values.slice(20, b.shape()));
  a_bias.set_value(values.slice(30, a_bias.shape()));
  b_bias.set_value(values.slice(34, b_bias.shape()));
  CHECK(ops::side_by_side(layers_of({&a, &b}, {})));
  CHECK(ops::side_by_side(layers_of({&a, &b}, {&a_bias, &b_bias})));
  CHECK_FALSE(ops::side_by_side(layers_of({&b, &a}, {})));
  CHECK_FALSE(ops::side_by_side(layers_of({&a, &b}, {&a_bias, nullptr})));
  CHECK_FALSE(ops::side_by_side(layers_of({&a, &b}, {&b_bias, &a_bias})));
  CHECK_FALSE(ops::side_by_side({{.weight = a, .layout = WeightLayout::kInOut},
                                 {.weight = b, .layout = WeightLayout::kInOut}}));
  b.set_trainable(false);
  CHECK_FALSE(ops::side_by_side(layers_of({&a, &b}, {})));
}

// ---------------------------------------------------------------------------- A term on top

TEST_CASE("add_linear: gradients of both results and of the weight against finite differences") {
  cpu::CpuBackend backend;
  for (const Case& c : cases()) {
    if (c.bias || c.activation != Activation::kNone) continue;
    CAPTURE(c.x.str());
    test::GradientCheck check(backend);
    check.input("x", c.x);
    Parameter& w = check.parameter("w", weight_shape(c));
    Parameter& a = check.parameter("a", Shape{2, c.x.last()});
    Parameter& b = check.parameter("b", Shape{c.out, 2});
    check.run([&](const std::vector<Tensor>& in) {
      const Tensor y = ops::linear(in[0], {.weight = w, .layout = c.layout});
      return std::vector<Tensor>{
          ops::add_linear(y, ops::linear(in[0], {.weight = a}), {.weight = b}, 0.7)};
    });
    w.set_trainable(false);
    check.run([&](const std::vector<Tensor>& in) {
      const Tensor y = ops::linear(in[0], {.weight = w, .layout = c.layout});
      return std::vector<Tensor>{
          ops::add_linear(y, ops::linear(in[0], {.weight = a}), {.weight = b}, 0.7)};
    });
  }
}

TEST_CASE("add_linear: values in every dtype, in the memory of what it adds to") {
  cpu::CpuBackend backend;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
      CAPTURE(name_of(dtype));
      const Case c = {Shape{2, 3, 5}, 7, layout, false, Activation::kNone};
      const Tensor x = test::random_tensor(backend, c.x, dtype, 1);
      const Tensor y = test::random_tensor(backend, Shape{2, 3, 7}, dtype, 4);
      Parameter w("w", weight_shape(c), {}, true);
      w.set_value(test::random_tensor(backend, w.shape(), dtype, 2));
      std::vector<double> expected = ops::linear(x, {.weight = w, .layout = layout}).to_doubles();
      const std::vector<double> before = y.to_doubles();
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = before[i] + 2 * expected[i];
      const Tensor sum = ops::add_linear(y, x, {.weight = w, .layout = layout}, 2);
      CHECK(sum.data() == y.data());
      const std::vector<double> got = sum.to_doubles();
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(std::abs(got[i] - expected[i]) <= 32 * test::unit_roundoff(dtype));
      }
    }
  }
}

TEST_CASE("add_linear: what does not fit") {
  cpu::CpuBackend backend;
  Parameter w("w", Shape{7, 5}, {}, true), b("b", Shape{7}, {}, false);
  w.set_value(test::random_tensor(backend, w.shape(), DType::kF32, 2));
  const auto error = [&](Shape y, DType dtype, double scale, Parameter* bias) {
    return error_of([&] {
      ops::add_linear(Tensor::zeros(backend, y, dtype),
                      Tensor::zeros(backend, Shape{3, 5}, DType::kF32), {.weight = w, .bias = bias},
                      scale);
    });
  };
  CHECK(error(Shape{3, 7}, DType::kF32, 1, nullptr) == "");
  CHECK(error(Shape{3, 6}, DType::kF32, 1, nullptr) ==
        "[add_linear] y: expected (3, 7), got (3, 6)");
  CHECK(error(Shape{3, 7}, DType::kF64, 1, nullptr) == "[add_linear] y: expected f32, got f64");
  CHECK(error(Shape{3, 7}, DType::kF32, 0, nullptr) ==
        "[add_linear] scale: expected anything but 0");
  CHECK(error(Shape{3, 7}, DType::kF32, 1, &b) == "[add_linear] bias: expected none");
}

}  // namespace
}  // namespace fsdp
