// Residual add, SwiGLU and dropout: gradients against finite differences, masks that replay.
#include "core/ops/elementwise.h"

#include <cmath>
#include <optional>

#include <doctest/doctest.h>

#include "core/ops/linear.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;
using Tensors = std::vector<Tensor>;

TEST_CASE("add and swiglu: gradients against finite differences") {
  cpu::CpuBackend backend;
  for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{2, 3, 67}}) {
    CAPTURE(shape.str());
    test::GradientCheck check(backend);
    check.input("a", shape);
    check.input("b", shape, -3, 3);
    check.run([](const Tensors& in) { return Tensors{ops::add(in[0], in[1])}; });
    check.run([](const Tensors& in) { return Tensors{ops::glu(in[1], in[0])}; });
    check.run([](const Tensors& in) {  // the same tensor on both sides, and a shared gradient
      const Tensor y = ops::add(in[0], in[1]);
      return Tensors{ops::glu(y, y), ops::add(y, in[0])};
    });
  }
}

TEST_CASE("swiglu of halves: gradients against finite differences, the bits of two tensors") {
  cpu::CpuBackend backend;
  for (const Shape& shape : {Shape{2}, Shape{3, 6}, Shape{2, 3, 1300}}) {
    CAPTURE(shape.str());
    test::GradientCheck check(backend);
    check.input("x", shape, -3, 3);
    check.run(
        [](const Tensors& in) { return Tensors{ops::glu_of_halves(in[0], Activation::kSilu)}; });
    check.run([](const Tensors& in) {  // somebody else holds it too
      return Tensors{ops::glu_of_halves(in[0], Activation::kGeluTanh), in[0]};
    });
  }
  const Tensor both = test::random_tensor(backend, Shape{3, 134}, DType::kF32, 1, -6, 6);
  const std::vector<double> values = both.to_doubles();
  std::vector<double> halves[2];
  for (size_t i = 0; i < values.size(); ++i) halves[i / 67 % 2].push_back(values[i]);
  const auto half = [&](size_t i) {
    return test::make_tensor(backend, Shape{3, 67}, DType::kF32, halves[i]);
  };
  CHECK(ops::glu_of_halves(both, Activation::kSilu).to_doubles() ==
        ops::glu(half(0), half(1)).to_doubles());
  CHECK(error_of([&] { ops::glu_of_halves(half(0), Activation::kSilu); }) ==
        "[glu] halves: expected rows of an even number of elements, got 67");
}

TEST_CASE("swiglu of halves saves its input alone, and backward takes no memory") {
  cpu::CpuBackend backend;
  for (const bool selective : {false, true}) {
    Tape tape(backend);
    const auto total = [&] { return backend.ledger().usage().total_current; };
    const test::Leaf a(tape, test::random_tensor(backend, Shape{2048}, DType::kF32, 1));
    const test::Leaf b(tape, test::random_tensor(backend, Shape{2048}, DType::kF32, 2));
    Tensor x = ops::add(a.value(), b.value());  // that nobody else holds
    const size_t before = total();
    Tensor y;
    {
      std::optional<Tape::Selective> mode;
      if (selective) mode.emplace(tape);
      y = ops::glu_of_halves(x, Activation::kSilu);
    }
    CHECK(total() - before == 4096);
    const void* const memory = x.data();
    x = Tensor();
    Tensor dy = Tensor::zeros(backend, y.shape(), DType::kF32);
    const size_t highest = backend.ledger().usage().total_peak;
    tape.backward(y, dy);
    CHECK(a.gradient().data() == memory);
    CHECK(backend.ledger().usage().total_peak == highest);
  }
}

TEST_CASE("activate: gradients against finite differences, the values of a linear layer's own") {
  cpu::CpuBackend backend;
  Parameter w("w", Shape{4, 5}, {}, true);
  w.set_value(test::random_tensor(backend, w.shape(), DType::kF64, 3));
  for (const Activation kind : {Activation::kGeluTanh, Activation::kGeluErf}) {
    test::GradientCheck check(backend);
    check.input("x", Shape{3, 67}, -3, 3);
    check.run([&](const Tensors& in) { return Tensors{ops::activate(in[0], kind)}; });
    const Tensor x = test::random_tensor(backend, Shape{3, 5}, DType::kF64, 1, -3, 3);
    CHECK(ops::activate(ops::linear(x, {.weight = w}), kind).to_doubles() ==
          ops::linear(x, {.weight = w}, kind).to_doubles());
  }
  const Tensor x = test::random_tensor(backend, Shape{3}, DType::kF64, 1);
  CHECK(ops::activate(x, Activation::kNone).data() == x.data());
}

TEST_CASE("swiglu saves its two inputs and nothing else") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  const test::Leaf gate(tape, test::random_tensor(backend, Shape{1024}, DType::kF32, 1));
  const test::Leaf up(tape, test::random_tensor(backend, Shape{1024}, DType::kF32, 2));
  const size_t before = backend.ledger().usage().total_current;
  const Tensor y = ops::glu(gate.value(), up.value());
  CHECK(backend.ledger().usage().total_current - before == 4096);
}

// ---------------------------------------------------------------------------- Dropout

struct DropoutRig {
  cpu::CpuBackend backend;
  Tensor samples = Tensor::from_host(backend, Shape{3}, std::vector<int64_t>{17, 4, 17});
  ForwardContext context = {
      .training = true, .dropout = {.seed = 5, .step = 3}, .samples = &samples};

  Dropout args(double probability, int64_t layer = 1,
               ops::DropoutSite site = ops::DropoutSite::kMlpOutput) {
    return ops::dropout_args(context, probability, layer, site);
  }
  std::vector<double> mask(const Dropout& args) {
    const Tensor ones =
        test::make_tensor(backend, Shape{3, 5, 13}, DType::kF64, std::vector<double>(195, 1.0));
    return ops::dropout(ones, args).to_doubles();
  }
};

TEST_CASE("dropout: the gradient is the mask of forward, seen by finite differences") {
  DropoutRig rig;
  test::GradientCheck check(rig.backend);
  check.input("x", Shape{3, 5, 13});
  const Dropout args = rig.args(0.3);
  check.run([&](const Tensors& in) { return Tensors{ops::dropout(in[0], args)}; });
  check.run([&](const Tensors& in) {  // twice in one graph, other layer: other mask
    return Tensors{ops::dropout(ops::dropout(in[0], args), rig.args(0.5, 2))};
  });
}

TEST_CASE("dropout: kept elements are scaled, the rate is right, backward replays the mask") {
  DropoutRig rig;
  Tape tape(rig.backend);
  const Shape shape = {3, 40, 50};
  const test::Leaf x(
      tape, test::make_tensor(rig.backend, shape, DType::kF32, std::vector<double>(6000, 1.0)));
  const Tensor y = ops::dropout(x.value(), rig.args(0.25));
  const std::vector<double> mask = y.to_doubles();
  int kept = 0;
  for (const double m : mask) {
    const bool zero = m == 0, scaled = std::abs(m - 1 / 0.75) < 1e-6;
    CHECK((zero || scaled));
    kept += scaled ? 1 : 0;
  }
  CHECK(std::abs(kept / 6000.0 - 0.75) < 4 * std::sqrt(0.25 * 0.75 / 6000));
  tape.backward(y,
                test::make_tensor(rig.backend, shape, DType::kF32, std::vector<double>(6000, 1.0)));
  CHECK(x.gradient().to_doubles() == mask);
}

TEST_CASE("dropout: the mask depends on seed, step, micro step, layer, site and sample only") {
  DropoutRig rig;
  const std::vector<double> mask = rig.mask(rig.args(0.5));
  CHECK(rig.mask(rig.args(0.5)) == mask);
  // Rows 0 and 2 are the same global sample.
  CHECK(std::equal(mask.begin(), mask.begin() + 65, mask.begin() + 130));
  CHECK_FALSE(std::equal(mask.begin(), mask.begin() + 65, mask.begin() + 65));
  CHECK(rig.mask(rig.args(0.5, 2)) != mask);
  CHECK(rig.mask(rig.args(0.5, 1, ops::DropoutSite::kAttentionOutput)) != mask);
  const auto changed = [&](DropoutKey key) {
    rig.context.dropout = key;
    return rig.mask(rig.args(0.5)) != mask;
  };
  CHECK(changed({.seed = 6, .step = 3}));
  CHECK(changed({.seed = 5, .step = 4}));
  CHECK(changed({.seed = 5, .step = 3, .micro_step = 1}));
  CHECK_FALSE(changed({.seed = 5, .step = 3}));
}

TEST_CASE("dropout: a batch split over ranks draws the masks of the whole batch") {
  DropoutRig rig;
  const std::vector<double> mask = rig.mask(rig.args(0.5));
  const Tensor last = Tensor::from_host(rig.backend, Shape{1}, std::vector<int64_t>{4});
  rig.context.samples = &last;
  const Tensor ones =
      test::make_tensor(rig.backend, Shape{1, 5, 13}, DType::kF64, std::vector<double>(65, 1.0));
  CHECK(ops::dropout(ones, rig.args(0.5)).to_doubles() ==
        std::vector<double>(mask.begin() + 65, mask.begin() + 130));
}

TEST_CASE("dropout: off outside training and at probability 0, without a copy") {
  DropoutRig rig;
  const Tensor x = test::random_tensor(rig.backend, Shape{3, 4}, DType::kF32, 1);
  CHECK(ops::dropout(x, rig.args(0)).data() == x.data());
  rig.context.training = false;
  CHECK(ops::dropout(x, rig.args(0.5)).data() == x.data());
}

TEST_CASE("element-wise ops: wrong shapes, dtypes and probabilities are named") {
  DropoutRig rig;
  const Tensor a = Tensor::zeros(rig.backend, Shape{2, 3}, DType::kF32);
  const Tensor b = Tensor::zeros(rig.backend, Shape{3, 2}, DType::kF32);
  const Tensor half = Tensor::zeros(rig.backend, Shape{2, 3}, DType::kBF16);
  CHECK(error_of([&] { ops::add(a, b); }) == "[add] second operand: expected (2, 3), got (3, 2)");
  CHECK(error_of([&] { ops::add(a, half); }) == "[add] second operand: expected f32, got bf16");
  CHECK(error_of([&] { ops::glu(a, b); }) == "[glu] up: expected (2, 3), got (3, 2)");
  CHECK(error_of([&] { ops::glu(half, a); }) == "[glu] up: expected bf16, got f32");
  CHECK(error_of([&] { rig.args(1.0); }) == "[dropout] probability: expected within [0, 1), got 1");
  CHECK(error_of([&] { ops::dropout(a, rig.args(0.5)); }) ==
        "[dropout] samples: expected (2), got (3)");
  rig.context.samples = nullptr;
  CHECK(error_of([&] { rig.args(0.5); }) ==
        "[dropout] samples: needs the global sample index of every row");
}

}  // namespace
}  // namespace fsdp
