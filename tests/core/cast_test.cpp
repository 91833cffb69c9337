// Casts with a gradient: values, and gradients against finite differences.
#include "core/cast.h"

#include <doctest/doctest.h>

#include "core/ops/elementwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using Tensors = std::vector<Tensor>;

TEST_CASE("cast: values and gradients are rounded to the dtype they go to") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  const test::Leaf x(tape, test::random_tensor(backend, Shape{3, 67}, DType::kBF16, 1));
  const Tensor wide = cast(x.value(), DType::kF32);
  CHECK(wide.dtype() == DType::kF32);
  CHECK(wide.to_doubles() == x.value().to_doubles());  // a wider type holds all of a narrow one
  const Tensor gradient = test::random_tensor(backend, wide.shape(), DType::kF32, 2);
  tape.backward(wide, gradient);
  CHECK(x.gradient().dtype() == DType::kBF16);
  const std::vector<double> exact = gradient.to_doubles(), rounded = x.gradient().to_doubles();
  for (size_t i = 0; i < exact.size(); ++i) {
    CHECK(rounded[i] == static_cast<float>(BFloat16(static_cast<float>(exact[i]))));
  }
  CHECK(cast(wide, DType::kF32).storage() == wide.storage());  // nothing to do
}

TEST_CASE("cast: a gradient through a piece in f32 against finite differences in f64") {
  cpu::CpuBackend backend;
  test::GradientCheck check(backend);
  check.tolerance = 1e-3;  // f32 rounds what the differences are taken of
  check.input("a", Shape{3, 5});
  check.input("b", Shape{3, 5}, -3, 3);
  check.run([](const Tensors& in) {
    const Tensor a = cast(in[0], DType::kF32), b = cast(in[1], DType::kF32);
    return Tensors{ops::add(cast(ops::glu(a, b), DType::kF64), in[0])};
  });
}

}  // namespace
}  // namespace fsdp
