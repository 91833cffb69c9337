// What is peculiar to one rule: Adadelta's and Adamax's steps as PyTorch 2.13 took them in f64
// (foreach=False), what decay does in AdamW and Adam, when SGD's momentum begins. AdamW's, Adam's
// and SGD's steps against PyTorch's, and what all optimizers have in common: optimizer_test.cpp.
// Requirements: S2.8, S4.9.
#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "optim/optimizer.h"
#include "optim/optimizer_kind.h"
#include "tests/support/flat_unit.h"
#include "tests/support/temp_folder.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;
using Members = std::vector<test::FlatUnit::Member>;

// A shard of all parameters in f64, and the scalars of a step.
struct Rig {
  cpu::CpuBackend backend;
  test::FlatUnit unit;
  OptimizerShard shard;
  Tensor one = test::make_tensor(backend, Shape{}, DType::kF64, {1});
  Tensor skip = Tensor::zeros(backend, Shape{}, DType::kI32);

  explicit Rig(const Members& parameters, int64_t alignment = 4)
      : unit(parameters, 1, alignment), shard(unit.shard(backend, 0, DType::kF64, DType::kF64)) {}
  void step(Optimizer& optimizer, double rate) { optimizer.step(rate, one, skip, 1); }
};

struct TorchSteps {
  double rate;
  OptimizerOptions options;
  std::vector<Doubles> values;  // the master after each of three steps, then the state's two values
};

// clang-format off
const TorchSteps kTorch[] = {
    {0.5, {.kind = OptimizerKind::kAdadelta, .weight_decay = 0.1, .rho = 0.8, .epsilon = 1e-3},
     {{0.46472456011412172, -0.21466619609665838, 1.9648236764659275, 0},
      {0.48639336752137141, -0.22091881477106223, 1.9155029296358825, -0.00049995000749875019},
      {0.4768842879701965, -0.22027233094035853, 1.9297427349234424, -0.035849004000934249},
      {0.18006008115855571, 0.53333401119786106, 3.011112467676452, 1.7999401664989998},
      {0.0010099525018588569, 0.00066457588837794872, 0.0023525760806764068, 0.00099980446259105311}}},
    {1, {.kind = OptimizerKind::kAdadelta, .weight_decay = 0, .epsilon = 1e-6},
     {{0.49683773815110133, -0.24683772629267128, 1.9968377855834876, 0},
      {0.49892286801309504, -0.24742193136783111, 1.9923968123074554, -0.0009534625892455924},
      {0.49833360943320709, -0.24742193136783111, 1.9939721766202925, -0.0042563518845423181},
      {0.10506249999999998, 0.32962499999999995, 1.5602499999999995, 0.90000008999999981},
      {1.2360134562021645e-06, 8.40714576290889e-07, 2.833146800570876e-06, 1.1727259515167517e-06}}},
    {0.05, {.kind = OptimizerKind::kAdamax, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3},
     {{0.45004757373929588, -0.20002467917077985, 1.9500713266761769, 0},
      {0.43874132932263421, -0.17884930368302987, 1.9185929408472622, -0.013888888888888892},
      {0.42726244512007622, -0.16474048366528588, 1.9023365665548648, -0.034379325870246225},
      {0.095375587766281425, -0.22597738094039305, 0.59917300004376406, 0.59988222222222209},
      {0.85131000000000001, 1.64106, 3.7764064194008564, 2.9996111111111108}}},
    {0.002, {.kind = OptimizerKind::kAdamax, .weight_decay = 0, .beta2 = 0.999},
     {{0.49800000002, -0.24800000001, 1.99800000004, 0},
      {0.49757852591853013, -0.24718339393431907, 1.9968289474113488, -0.0010526210527368413},
      {0.49721987540038792, -0.24666760272265928, 1.9962739643854284, -0.0017908498325639017},
      {0.048499999999999995, -0.13949999999999999, 0.30049999999999993, 0.30008999999999991},
      {0.99800100998000996, 1.99600200998001, 3.9960000099899999, 3.0000000099999999}}}};
// clang-format on

TEST_CASE("adadelta, adamax: PyTorch's steps with decay and by their defaults, and their state") {
  for (const TorchSteps& torch : kTorch) {
    CAPTURE(name_of(torch.options.kind));
    Rig rig(Members{{4, true}});
    rig.unit.write(rig.shard, rig.shard.master, 0, {0.5, -0.25, 2, 0});
    Optimizer optimizer({rig.shard}, torch.options);
    std::vector<Doubles> got;
    for (const Doubles& gradient :
         {Doubles{1, -2, 0.5, 0}, {-0.5, 0.25, 4, 1e-3}, {0.125, 0, -1, 3}}) {
      rig.unit.write(rig.shard, rig.shard.gradient, 0, gradient);
      rig.step(optimizer, torch.rate);
      got.push_back(rig.shard.master.to_doubles());
    }
    optimizer.visit_state([&](const StatePart& part) {
      if (part.values.shape().rank() == 1) got.push_back(part.values.to_doubles());
    });
    REQUIRE(got.size() == torch.values.size());
    for (size_t i = 0; i < got.size(); ++i) {
      for (size_t j = 0; j < 4; ++j) {
        CHECK(got[i][j] == doctest::Approx(torch.values[i][j]).epsilon(1e-14));
      }
    }
  }
}

TEST_CASE("names of what each rule keeps") {
  using Names = std::vector<std::string_view>;
  CHECK(state_names({.kind = OptimizerKind::kAdadelta}) == Names{"square_avg", "acc_delta"});
  CHECK(state_names({.kind = OptimizerKind::kAdamax}) == Names{"exp_avg", "exp_inf"});
  CHECK(state_names({.kind = OptimizerKind::kSgd}).empty());
  CHECK(state_names({.kind = OptimizerKind::kSgd, .momentum = 0.9}) == Names{"momentum_buffer"});
}

// Two parameters, 5 elements with decay and 3 without, in a step without gradient. In Adam decay is
// a gradient, which the first step takes by its sign.
TEST_CASE("adamw, adam: decay shrinks the parameters that have the flag, or is their gradient") {
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam}) {
    CAPTURE(name_of(kind));
    Rig rig(Members{{5, true}, {3, false}}, /*alignment=*/5);
    rig.unit.write(rig.shard, rig.shard.master, 0, test::random_values(5, 1));
    rig.unit.write(rig.shard, rig.shard.master, 1, test::random_values(3, 2));
    const Doubles before = rig.shard.master.to_doubles();
    Optimizer optimizer({rig.shard}, {.kind = kind, .weight_decay = 0.5});
    rig.step(optimizer, 0.1);
    const Doubles after = rig.shard.master.to_doubles();
    const bool shrinks = kind == OptimizerKind::kAdamW;
    for (size_t i = 0; i < 8; ++i) {
      const double moved = shrinks ? -0.05 * before[i] : before[i] > 0 ? -0.1 : 0.1;
      const double expected = before[i] + (i < 5 ? moved : 0);
      CHECK(after[i] == doctest::Approx(expected).epsilon(shrinks ? 1e-15 : 1e-6));
    }
  }
}

TEST_CASE("sgd: each parameter's momentum begins with its own first gradient, not dampened") {
  Rig rig(Members{{1}, {1}});
  Optimizer sgd(
      {rig.shard},
      {.kind = OptimizerKind::kSgd, .weight_decay = 0, .momentum = 0.5, .dampening = 0.75});
  for (int p = 0; p < 2; ++p) rig.unit.write(rig.shard, rig.shard.gradient, p, {1});
  Doubles got;
  for (const std::vector<int32_t>& present : {std::vector{1, 0}, {1, 1}, {1, 1}}) {
    rig.shard.present.write(present.data());
    rig.step(sgd, 1);
    for (int p = 0; p < 2; ++p) {
      Doubles master(1);
      rig.unit.read(rig.shard, rig.shard.master, p, master);
      got.push_back(master[0]);
    }
  }
  // Buffers: 1, 0.5 + 0.25, 0.375 + 0.25; the second parameter is a step behind.
  CHECK(got == Doubles{-1, 0, -1.75, -1, -2.375, -1.75});
}

TEST_CASE("sgd: Nesterov's momentum needs momentum, not dampened") {
  const Rig rig(Members{{1}});
  const auto error = [&](double momentum, double dampening) {
    return test::error_of([&] {
      Optimizer({rig.shard}, {.kind = OptimizerKind::kSgd,
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
