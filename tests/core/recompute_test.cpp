// Recompute: the same values and gradients as without, what it keeps, frozen pieces, pauses.
#include "core/recompute.h"

#include <optional>

#include <doctest/doctest.h>

#include "core/ops/elementwise.h"
#include "core/ops/linear.h"
#include "core/ops/norm.h"
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
  const auto body = [](const Tensor& x) { return ops::glu(ops::glu(x, x), x); };
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
    p->set_tape(&tape);
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
  const Dropout args = {.probability = 0.5, .key = {.seed = 1}, .samples = &samples};
  test::GradientCheck check(backend);
  check.input("x", Shape{2, 50});
  const auto body = [&](const Tensor& x) { return ops::dropout(ops::glu(x, x), args); };
  check.run([&](const Tensors& in) { return Tensors{recompute(check.tape(), in[0], body)}; });
}

TEST_CASE("recipe: computed once for all users, given back after the last") {
  cpu::CpuBackend backend;
  const auto bytes = [&] { return backend.ledger().usage().total_current; };
  int runs = 0;
  Recipe recipe([&] {
    ++runs;
    return Tensor::zeros(backend, Shape{128}, DType::kF32);
  });
  recipe.add_user();
  recipe.add_user();
  const size_t before = bytes();
  Tensor first = recipe.take();
  first = Tensor();
  CHECK(bytes() == before + 512);
  Tensor second = recipe.take();
  CHECK(runs == 1);
  second = Tensor();
  CHECK(bytes() == before);
}

TEST_CASE("selective: keeps the results of products, not those of norms and activations") {
  cpu::CpuBackend backend;
  Parameter gain("gain", Shape{32}, {}, false), up("up", Shape{64, 32}, {}, true),
      down("down", Shape{32, 64}, {}, true);
  const Tensor input = test::random_tensor(backend, Shape{2, 8, 32}, DType::kF32, 1);
  const Tensor dy = test::random_tensor(backend, Shape{2, 8, 32}, DType::kF32, 2);
  constexpr size_t kNarrow = 2 * 8 * 32 * 4, kWide = 2 * 8 * 64 * 4;
  std::vector<std::vector<double>> expected;
  for (const bool selective : {false, true}) {
    Tape tape(backend);
    for (Parameter* p : {&gain, &up, &down}) {
      p->set_value(test::random_tensor(backend, p->shape(), DType::kF32, hash_name(p->name())));
      p->set_tape(&tape);
    }
    const test::Leaf x(tape, input);
    const size_t before = backend.ledger().usage().total_current;
    Tensor y;
    {
      std::optional<Tape::Selective> guard;
      if (selective) guard.emplace(tape);
      const ops::NormOutput normed = ops::norm(x.value(), Tensor(), {gain, nullptr, 1e-5});
      y = ops::linear(ops::linear(normed.y, {.weight = up}, Activation::kGeluTanh),
                      {.weight = down});
    }
    // The statistics of the norm (512 bytes at least) and the product before GELU are kept; with
    // everything kept also the norm's result and GELU's, else a copy of the norm's weight.
    const size_t kept = backend.ledger().usage().total_current - before - y.bytes();
    CHECK(kept == 512 + kWide + (selective ? 512 : kNarrow + kWide));
    tape.backward(y, dy);
    const std::vector<std::vector<double>> got = {
        y.to_doubles(), x.gradient().to_doubles(), gain.gradient().to_doubles(),
        up.gradient().to_doubles(), down.gradient().to_doubles()};
    if (selective) CHECK(got == expected);
    expected = got;
    for (Parameter* p : {&gain, &up, &down}) p->clear_gradient();
  }
}

}  // namespace
}  // namespace fsdp
