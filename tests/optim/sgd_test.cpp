// SGD: when its momentum begins, what it needs memory for, and what it refuses. Its steps against
// PyTorch's, and what all optimizers have in common: optimizer_test.cpp.
#include "core/optimizer_rules/sgd.h"

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "optim/optimizer.h"
#include "optim/optimizer_kind.h"
#include "tests/support/flat_unit.h"
#include "tests/support/temp_folder.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;

TEST_CASE("sgd: each parameter's momentum begins with its own first gradient, not dampened") {
  cpu::CpuBackend backend;
  const test::FlatUnit unit({{1}, {1}}, 1, 1);
  const OptimizerShard shard = unit.shard(backend, 0, DType::kF64, DType::kF64);
  const Tensor one = test::make_tensor(backend, Shape{}, DType::kF64, {1});
  const Tensor skip = Tensor::zeros(backend, Shape{}, DType::kI32);
  Optimizer sgd(
      {shard},
      {.kind = OptimizerKind::kSgd, .weight_decay = 0, .momentum = 0.5, .dampening = 0.75});
  const Doubles gradient = {1, 1};
  shard.gradient.write(gradient.data());
  Doubles expected;
  for (const std::vector<int32_t>& present : {std::vector{1, 0}, {1, 1}, {1, 1}}) {
    shard.present.write(present.data());
    sgd.step(1, one, skip, 1);
    const Doubles now = shard.master.to_doubles();
    expected.insert(expected.end(), now.begin(), now.end());
  }
  // Buffers: 1, 0.5 + 0.25, 0.375 + 0.25; the second parameter is a step behind.
  CHECK(expected == Doubles{-1, 0, -1.75, -1, -2.375, -1.75});
}

TEST_CASE("sgd: only momentum is kept") {
  CHECK(state_names({.kind = OptimizerKind::kSgd}).empty());
  CHECK(state_names({.kind = OptimizerKind::kSgd, .momentum = 0.9}) ==
        std::vector<std::string_view>{"momentum_buffer"});
}

TEST_CASE("sgd: Nesterov's momentum needs momentum, not dampened") {
  cpu::CpuBackend backend;
  const test::FlatUnit unit({{1}}, 1);
  const std::vector<OptimizerShard> shards = {unit.shard(backend, 0, DType::kF64, DType::kF64)};
  const auto error = [&](double momentum, double dampening) {
    return test::error_of([&] {
      Optimizer(shards, {.kind = OptimizerKind::kSgd,
                         .momentum = momentum,
                         .dampening = dampening,
                         .nesterov = true});
    });
  };
  CHECK(error(0.9, 0) == "");
  CHECK(error(0, 0) == "[sgd] nesterov: expected momentum above 0 and dampening 0, got 0 and 0");
  CHECK(error(0.9, 0.5) ==
        "[sgd] nesterov: expected momentum above 0 and dampening 0, got 0.9 and 0.5");
}

}  // namespace
}  // namespace fsdp::optim
