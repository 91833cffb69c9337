// Norms: every gradient against finite differences, with and without the residual add in front,
// memory, bf16, checks. Values: tests/kernels/norm_test.cpp.
#include "core/ops/norm.h"

#include <cmath>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;

enum class Uses : uint8_t { kBoth, kNormOnly };

TEST_CASE("norm: gradients of input, residual, weight and bias against finite differences") {
  cpu::CpuBackend backend;
  for (const Shape& shape : {Shape{2, 3, 5}, Shape{1, 1, 2}, Shape{7, 33}}) {
    for (const bool layer_norm : {false, true}) {
      for (const bool with_residual : {false, true}) {
        for (const Uses uses : {Uses::kBoth, Uses::kNormOnly}) {
          CAPTURE(shape.str());
          CAPTURE(layer_norm);
          CAPTURE(with_residual);
          test::GradientCheck check(backend);
          check.input("x", shape);
          if (with_residual) check.input("residual", shape);
          Parameter& w = check.parameter("w", Shape{shape.last()});
          Parameter* b = layer_norm ? &check.parameter("b", Shape{shape.last()}) : nullptr;
          check.run([&](const std::vector<Tensor>& in) {
            const ops::NormOutput out =
                ops::norm(in[0], with_residual ? in[1] : Tensor(), {w, b, 1e-2});
            return uses == Uses::kBoth ? std::vector<Tensor>{out.stream, out.y}
                                       : std::vector<Tensor>{out.y};
          });
        }
      }
    }
  }
}

TEST_CASE("norm: a stream of several norms, as in a block") {
  cpu::CpuBackend backend;
  test::GradientCheck check(backend);
  check.input("x", Shape{3, 5});
  check.input("branch", Shape{3, 5});
  Parameter& w1 = check.parameter("w1", Shape{5});
  Parameter& w2 = check.parameter("w2", Shape{5});
  Parameter& b2 = check.parameter("b2", Shape{5});
  check.run([&](const std::vector<Tensor>& in) {
    const ops::NormOutput first = ops::norm(in[0], Tensor(), {w1, nullptr, 1e-3});
    const ops::NormOutput second = ops::norm(in[1], first.stream, {w2, &b2, 1e-3});
    const ops::NormOutput third = ops::norm(first.y, second.stream, {w1, nullptr, 1e-3});
    return std::vector<Tensor>{third.stream, third.y, second.y};
  });
}

TEST_CASE("norm: the stream alone passes its gradient on; weights then have none") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Parameter w("w", Shape{4}, {}, false);
  w.set_value(test::random_tensor(backend, w.shape(), DType::kF64, 1));
  w.set_tape(&tape);
  const test::Leaf x(tape, test::random_tensor(backend, Shape{2, 4}, DType::kF64, 2));
  const Tensor dy = test::random_tensor(backend, Shape{2, 4}, DType::kF64, 3);
  tape.backward(ops::norm(x.value(), Tensor(), {w}).stream, dy);
  CHECK(x.gradient().to_doubles() == dy.to_doubles());
  CHECK_FALSE(w.gradient().defined());
  CHECK(w.pending_uses() == 0);
}

// Without a weight, in double.
std::vector<double> rms_norm(std::vector<double> x, size_t channels, double epsilon) {
  for (size_t row = 0; row < x.size(); row += channels) {
    double square = 0;
    for (size_t i = 0; i < channels; ++i) square += x[row + i] * x[row + i];
    const double rstd = 1 / std::sqrt(square / static_cast<double>(channels) + epsilon);
    for (size_t i = 0; i < channels; ++i) x[row + i] *= rstd;
  }
  return x;
}

TEST_CASE("norm: rms norm rounds x * rstd to bf16 before it multiplies by the weight") {
  cpu::CpuBackend backend;
  Parameter w("w", Shape{64}, {}, false);
  w.set_value(test::random_tensor(backend, w.shape(), DType::kBF16, 3));
  const Tensor x = test::random_tensor(backend, Shape{16, 64}, DType::kBF16, 1);
  const std::vector<double> normalised =
      test::rounded(rms_norm(x.to_doubles(), 64, 1e-6), DType::kBF16);
  const std::vector<double> weight = w.value().to_doubles();
  const std::vector<double> got = ops::norm(x, Tensor(), {w, nullptr, 1e-6}).y.to_doubles();
  int different = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double expected = normalised[i] * weight[i % 64];
    different += got[i] != test::rounded({expected}, DType::kBF16)[0] ? 1 : 0;
  }
  CHECK(different <= 2);  // f32 statistics against double ones may move a tie
}

TEST_CASE("norm: saves the stream and one or two statistics per row") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Parameter w("w", Shape{64}, {}, false), b("b", Shape{64}, {}, false);
  for (Parameter* p : {&w, &b}) {
    p->set_value(test::random_tensor(backend, p->shape(), DType::kBF16, 2));
    p->set_tape(&tape);
  }
  const auto activations = [&] {
    return backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kActivation)];
  };
  const Tensor x = Tensor::zeros(backend, Shape{200, 64}, DType::kBF16);
  const size_t before = activations();
  const size_t row_bytes = rounded_bytes(200 * 4), value_bytes = rounded_bytes(200 * 64 * 2);
  {
    const ops::NormOutput out = ops::norm(x, Tensor(), {w});  // its stream is x itself
    CHECK(activations() - before == value_bytes + row_bytes);
  }
  {
    const ops::NormOutput out = ops::norm(x, x, {w, &b});
    CHECK(activations() - before == 2 * value_bytes + 2 * row_bytes);
  }
  CHECK(activations() == before);
}

TEST_CASE("norm: wrong shapes and dtypes are named after the kind of norm") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::zeros(backend, Shape{2, 5}, DType::kF32);
  Parameter w("final_norm.weight", Shape{4}, {}, false), b("final_norm.bias", Shape{4}, {}, false);
  w.set_value(Tensor::zeros(backend, w.shape(), DType::kF32));
  b.set_value(Tensor::zeros(backend, b.shape(), DType::kF32));
  CHECK(error_of([&] { ops::norm(x, Tensor(), {w}); }) ==
        "[rms_norm] final_norm.weight: expected (5), got (4)");
  CHECK(error_of([&] {
          ops::norm(x, Tensor(), {w, &b});
        }) == "[layer_norm] final_norm.weight: expected (5), got (4)");
  const Tensor four = Tensor::zeros(backend, Shape{2, 4}, DType::kF32);
  CHECK(error_of([&] {
          ops::norm(four, x, {w, &b});
        }) == "[layer_norm] residual: expected (2, 4), got (2, 5)");
  const Tensor half = Tensor::zeros(backend, Shape{2, 4}, DType::kF16);
  CHECK(error_of([&] { ops::norm(half, Tensor(), {w}); }) ==
        "[rms_norm] final_norm.weight: expected f16, got f32");
  CHECK(error_of([&] { ops::norm(four, half, {w}); }) ==
        "[rms_norm] residual: expected f32, got f16");
}

}  // namespace
}  // namespace fsdp
