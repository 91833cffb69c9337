// AdamW and Adam: what weight decay does in each, and on which parameters. Their steps against
// PyTorch's, and what all optimizers have in common: optimizer_test.cpp.
// Requirements: S2.8.
#include "core/optimizer_rules/adam.h"

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "optim/optimizer.h"
#include "optim/optimizer_kind.h"
#include "tests/support/flat_unit.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;

// The master of two parameters, 5 elements with decay and 3 without, after a step without gradient.
struct Decayed {
  Doubles before, after;
};
Decayed decayed(const OptimizerOptions& options) {
  cpu::CpuBackend backend;
  const test::FlatUnit unit({{5, true}, {3, false}}, 1, 5);
  const OptimizerShard shard = unit.shard(backend, 0, DType::kF64, DType::kF64);
  unit.write(shard, shard.master, 0, test::random_values(5, 1));
  unit.write(shard, shard.master, 1, test::random_values(3, 2));
  const Doubles before = shard.master.to_doubles();
  Optimizer({shard}, options)
      .step(0.1, test::make_tensor(backend, Shape{}, DType::kF64, {1}),
            Tensor::zeros(backend, Shape{}, DType::kI32), 1);
  return {before, shard.master.to_doubles()};
}

TEST_CASE("adamw: decay shrinks the parameters that have the flag") {
  const Decayed d = decayed({.weight_decay = 0.5});
  for (size_t i = 0; i < 8; ++i) {
    CHECK(d.after[i] == doctest::Approx(d.before[i] * (i < 5 ? 0.95 : 1.0)).epsilon(1e-15));
  }
}

TEST_CASE("adam: decay is a gradient, which the first step takes by its sign") {
  const Decayed d = decayed({.kind = OptimizerKind::kAdam, .weight_decay = 0.5});
  for (size_t i = 0; i < 8; ++i) {
    const double moved = i < 5 ? (d.before[i] > 0 ? -0.1 : 0.1) : 0;
    CHECK(d.after[i] == doctest::Approx(d.before[i] + moved).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace fsdp::optim
