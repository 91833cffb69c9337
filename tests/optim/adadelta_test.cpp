// Adadelta: three steps as PyTorch 2.13's torch.optim.Adadelta took them in f64 (foreach=False),
// with decay and by its defaults. What all optimizers have in common: optimizer_test.cpp.
// Requirements: S4.9.
#include "core/optimizer_rules/adadelta.h"

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
TEST_CASE("adadelta: PyTorch's steps with decay, and its state") {
  check(three_steps(0.5, {.kind = OptimizerKind::kAdadelta, .weight_decay = 0.1, .rho = 0.8, .epsilon = 1e-3}),
        {{0.46472456011412172, -0.21466619609665838, 1.9648236764659275, 0},
         {0.48639336752137141, -0.22091881477106223, 1.9155029296358825, -0.00049995000749875019},
         {0.4768842879701965, -0.22027233094035853, 1.9297427349234424, -0.035849004000934249},
         {0.18006008115855571, 0.53333401119786106, 3.011112467676452, 1.7999401664989998},
         {0.0010099525018588569, 0.00066457588837794872, 0.0023525760806764068, 0.00099980446259105311}});
}

TEST_CASE("adadelta: PyTorch's steps by its defaults") {
  check(three_steps(1, {.kind = OptimizerKind::kAdadelta, .weight_decay = 0, .epsilon = 1e-6}),
        {{0.49683773815110133, -0.24683772629267128, 1.9968377855834876, 0},
         {0.49892286801309504, -0.24742193136783111, 1.9923968123074554, -0.0009534625892455924},
         {0.49833360943320709, -0.24742193136783111, 1.9939721766202925, -0.0042563518845423181},
         {0.10506249999999998, 0.32962499999999995, 1.5602499999999995, 0.90000008999999981},
         {1.2360134562021645e-06, 8.40714576290889e-07, 2.833146800570876e-06, 1.1727259515167517e-06}});
}
// clang-format on

TEST_CASE("adadelta: names of its state") {
  CHECK(state_names({.kind = OptimizerKind::kAdadelta}) ==
        std::vector<std::string_view>{"square_avg", "acc_delta"});
}

}  // namespace
}  // namespace fsdp::optim
