// Adamax: three steps as PyTorch 2.13's torch.optim.Adamax took them in f64 (foreach=False), with
// decay and by its defaults. What all optimizers have in common: optimizer_test.cpp.
// Requirements: S4.9.
#include "core/optimizer_rules/adamax.h"

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "optim/optimizer.h"
#include "optim/optimizer_kind.h"
#include "tests/support/flat_unit.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;

// The master after each of three steps from {0.5, -0.25, 2, 0}, then the state's two values.
std::vector<Doubles> three_steps(double rate, const OptimizerOptions& options) {
  cpu::CpuBackend backend;
  const test::FlatUnit unit({{4, true}}, 1, 4);
  const OptimizerShard shard = unit.shard(backend, 0, DType::kF64, DType::kF64);
  unit.write(shard, shard.master, 0, {0.5, -0.25, 2, 0});
  Optimizer optimizer({shard}, options);
  std::vector<Doubles> out;
  for (const Doubles& gradient :
       {Doubles{1, -2, 0.5, 0}, {-0.5, 0.25, 4, 1e-3}, {0.125, 0, -1, 3}}) {
    unit.write(shard, shard.gradient, 0, gradient);
    optimizer.step(rate, test::make_tensor(backend, Shape{}, DType::kF64, {1}),
                   Tensor::zeros(backend, Shape{}, DType::kI32), 1);
    out.push_back(shard.master.to_doubles());
    out.back().resize(4);
  }
  optimizer.visit_state([&](const StatePart& part) {
    if (part.values.shape().rank() == 1) out.push_back(part.values.to_doubles());
  });
  return out;
}

void check(const std::vector<Doubles>& got, const std::vector<Doubles>& torch) {
  REQUIRE(got.size() == torch.size());
  for (size_t i = 0; i < torch.size(); ++i) {
    for (size_t j = 0; j < 4; ++j) CHECK(got[i][j] == doctest::Approx(torch[i][j]).epsilon(1e-14));
  }
}

// clang-format off
TEST_CASE("adamax: PyTorch's steps with decay, and its state") {
  check(three_steps(0.05, {.kind = OptimizerKind::kAdamax, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3}),
        {{0.45004757373929588, -0.20002467917077985, 1.9500713266761769, 0},
         {0.43874132932263421, -0.17884930368302987, 1.9185929408472622, -0.013888888888888892},
         {0.42726244512007622, -0.16474048366528588, 1.9023365665548648, -0.034379325870246225},
         {0.095375587766281425, -0.22597738094039305, 0.59917300004376406, 0.59988222222222209},
         {0.85131000000000001, 1.64106, 3.7764064194008564, 2.9996111111111108}});
}

TEST_CASE("adamax: PyTorch's steps by its defaults") {
  check(three_steps(0.002, {.kind = OptimizerKind::kAdamax, .weight_decay = 0, .beta2 = 0.999}),
        {{0.49800000002, -0.24800000001, 1.99800000004, 0},
         {0.49757852591853013, -0.24718339393431907, 1.9968289474113488, -0.0010526210527368413},
         {0.49721987540038792, -0.24666760272265928, 1.9962739643854284, -0.0017908498325639017},
         {0.048499999999999995, -0.13949999999999999, 0.30049999999999993, 0.30008999999999991},
         {0.99800100998000996, 1.99600200998001, 3.9960000099899999, 3.0000000099999999}});
}
// clang-format on

TEST_CASE("adamax: names of its state") {
  CHECK(state_names({.kind = OptimizerKind::kAdamax}) ==
        std::vector<std::string_view>{"exp_avg", "exp_inf"});
}

}  // namespace
}  // namespace fsdp::optim
