// Recompute: the same values and gradients as without, what it keeps, frozen pieces, pauses.
#include "core/recompute.h"

#include <doctest/doctest.h>

#include "core/ops/elementwise.h"
#include "core/ops/linear.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using Tensors = std::vector<Tensor>;

TEST_CASE("recompute: gradients of input and weights, also nested and used twice") {
  cpu::CpuBackend backend;
  test::GradientCheck check(backend);
  check.input("x", Shape{3, 4});
  Parameter& w = check.parameter("w", Shape{4, 4});
  Parameter& b = check.parameter("b", Shape{4});
  const auto layer = [&](const Tensor& x) {
    return ops::linear(x, {.weight = w, .bias = &b}, Activation::kGeluTanh);
  };
  check.run([&](const Tensors& in) { return Tensors{recompute(check.tape(), in[0], layer)}; });
  check.run([&](const Tensors& in) {
    const auto twice = [&](const Tensor& x) { return layer(recompute(check.tape(), x, layer)); };
    const Tensor y = recompute(check.tape(), in[0], twice);
    return Tensors{ops::add(y, in[0]), recompute(check.tape(), y, layer)};
  });
}

TEST_CASE("recompute: nothing is kept but input and output, nothing is recorded in a pause") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  const auto body = [](const Tensor& x) { return ops::swiglu(ops::swiglu(x, x), x); };
  const test::Leaf x(tape, test::random_tensor(backend, Shape{128}, DType::kF32, 1));
  const size_t before = backend.ledger().usage().total_current;
  const Tensor y = recompute(tape, x.value(), body);
  CHECK(backend.ledger().usage().total_current - before == 512);
  CHECK(y.to_doubles() == body(x.value()).to_doubles());
  const Tape::Pause pause(tape);
  CHECK_FALSE(recompute(tape, x.value(), body).requires_grad());
}

TEST_CASE("recompute: a frozen piece of a frozen input needs no gradient and no second run") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Parameter frozen("frozen", Shape{4, 4}, {}, true), w("w", Shape{4, 4}, {}, true);
  for (Parameter* p : {&frozen, &w}) {
    p->set_value(test::random_tensor(backend, p->shape(), DType::kF32, 2));
    p->attach(&tape, nullptr);
  }
  frozen.set_trainable(false);
  int runs = 0;
  const Tensor x = test::random_tensor(backend, Shape{3, 4}, DType::kF32, 1);
  const Tensor y = recompute(tape, x, [&](const Tensor& input) {
    ++runs;
    return ops::linear(input, {.weight = frozen});
  });
  tape.backward(ops::linear(y, {.weight = w}),
                test::random_tensor(backend, Shape{3, 4}, DType::kF32, 3));
  CHECK(w.gradient().defined());
  CHECK_FALSE(frozen.gradient().defined());
}

TEST_CASE("recompute: dropout draws the same mask again") {
  cpu::CpuBackend backend;
  const Tensor samples = Tensor::from_host(backend, Shape{2}, std::vector<int64_t>{4, 7});
  const DropoutArgs args = {.probability = 0.5, .key = {.seed = 1}, .samples = &samples};
  test::GradientCheck check(backend);
  check.input("x", Shape{2, 50});
  const auto body = [&](const Tensor& x) { return ops::dropout(ops::swiglu(x, x), args); };
  check.run([&](const Tensors& in) { return Tensors{recompute(check.tape(), in[0], body)}; });
}

}  // namespace
}  // namespace fsdp
