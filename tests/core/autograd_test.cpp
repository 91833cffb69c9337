// The tape: order of nodes, gradients that meet, gradients that are shared, graphs used twice,
// pauses, hooks, and how a parameter's contributions add up.
#include "core/autograd.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "core/ops/elementwise.h"
#include "core/ops/linear.h"
#include "core/shard_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;
using test::Leaf;
using Doubles = std::vector<double>;

Tensor values(Backend& backend, const Doubles& host) {
  return Tensor::from_host(backend, Shape{static_cast<int64_t>(host.size())}, host);
}

// y = x * factor, noting in `log` when its backward runs. It overwrites the gradient it is given
// when nobody else holds it, as real ops do.
Tensor scaled(Tape& tape, const Tensor& x, double factor, const std::string& name = "scaled",
              std::vector<std::string>* log = nullptr) {
  const auto times = [factor](const Tensor& t, Tensor out) {
    Doubles host = t.to_doubles();
    for (double& value : host) value *= factor;
    out.write(host.data());
    return out;
  };
  Tensor y = times(x, Tensor::empty(tape.backend(), x.shape(), x.dtype()));
  if (!tape_of({&x})) return y;
  tape.record(name, {&x}, {&y}, [times, name, log](std::vector<Tensor>& gradients) {
    if (log) log->push_back(name);
    const Tensor& dy = gradients[0];
    const bool own = dy.storage().use_count() == 1;
    Tensor dx = own ? dy.detached() : Tensor::empty(dy.backend(), dy.shape(), dy.dtype());
    return std::vector<Tensor>{times(dy, dx)};
  });
  return y;
}

struct Rig {
  cpu::CpuBackend backend;
  Tape tape{backend};
};

TEST_CASE("a chain multiplies its factors and runs from the end to the start") {
  Rig rig;
  const Leaf x(rig.tape, values(rig.backend, {1, 2}));
  std::vector<std::string> log;
  const Tensor once = scaled(rig.tape, x.value(), 3, "first", &log);
  const Tensor y = scaled(rig.tape, once, 5, "second", &log);
  CHECK(y.to_doubles() == Doubles{15, 30});
  rig.tape.backward(y, values(rig.backend, {1, 10}));
  CHECK(x.gradient().to_doubles() == Doubles{15, 150});
  CHECK(log == std::vector<std::string>{"second", "first"});
}

TEST_CASE("gradients meet in a diamond, and each node runs once after all its consumers") {
  Rig rig;
  std::vector<std::string> log;
  const Leaf x(rig.tape, values(rig.backend, {1}));
  const Tensor top = scaled(rig.tape, x.value(), 2, "top", &log);
  const Tensor left = scaled(rig.tape, top, 3, "left", &log);
  const Tensor right = scaled(rig.tape, scaled(rig.tape, top, 5, "right", &log), 7, "more", &log);
  const Tensor bottom = ops::add(left, right);
  rig.tape.backward(bottom, values(rig.backend, {1}));
  CHECK(x.gradient().item() == 2 * (3 + 35));
  CHECK(log == std::vector<std::string>{"more", "right", "left", "top"});
}

TEST_CASE("a tensor used twice by one op gets both gradients") {
  Rig rig;
  const Leaf x(rig.tape, values(rig.backend, {4}));
  rig.tape.backward(ops::add(x.value(), x.value()), values(rig.backend, {3}));
  CHECK(x.gradient().item() == 6);
}

TEST_CASE("a gradient that several consumers share is not corrupted by those that write in place") {
  Rig rig;
  const Leaf a(rig.tape, values(rig.backend, {1})), b(rig.tape, values(rig.backend, {1}));
  // add hands the very same gradient to both sides; scaled() would overwrite it, and the second
  // contribution to a would be added into it.
  const Tensor y = ops::add(scaled(rig.tape, a.value(), 10), b.value());
  const Tensor z = ops::add(y, a.value());
  const Tensor gradient = values(rig.backend, {1});
  rig.tape.backward(z, gradient);
  CHECK(a.gradient().item() == 11);
  CHECK(b.gradient().item() == 1);
  CHECK(gradient.item() == 1);  // the caller's own
}

TEST_CASE("many shared gradients: a ladder of adds against the sum of its paths") {
  Rig rig;
  const Leaf x(rig.tape, values(rig.backend, {1}));
  Tensor y = x.value();
  double expected = 1;
  for (int i = 1; i <= 6; ++i) {
    y = ops::add(scaled(rig.tape, y, i), y);
    expected *= i + 1;
  }
  CHECK(y.item() == expected);
  rig.tape.backward(y, values(rig.backend, {1}));
  CHECK(x.gradient().item() == expected);
}

TEST_CASE("a branch without a gradient is passed on as none") {
  Rig rig;
  const Leaf x(rig.tape, values(rig.backend, {1})), unused(rig.tape, values(rig.backend, {1}));
  const Tensor side = scaled(rig.tape, unused.value(), 2);
  rig.tape.backward(scaled(rig.tape, x.value(), 2), values(rig.backend, {1}));
  CHECK(x.gradient().item() == 2);
  CHECK_FALSE(unused.gradient().defined());
}

TEST_CASE("a second backward over the same graph is an error that names the op") {
  Rig rig;
  const Leaf x(rig.tape, values(rig.backend, {1}));
  const Tensor y = scaled(rig.tape, x.value(), 2, "first_op");
  rig.tape.backward(y, values(rig.backend, {1}));
  CHECK(error_of([&] { rig.tape.backward(y, values(rig.backend, {1})); }) ==
        "[backward] first_op: its graph was used already");
  CHECK(error_of([&] { rig.tape.backward(values(rig.backend, {1})); }) ==
        "[backward] output: needs a recorded graph");
}

TEST_CASE("backward frees what a node saved as soon as it ran") {
  Rig rig;
  const auto saved = std::make_shared<int>(0);
  const Leaf x(rig.tape, values(rig.backend, {1}));
  Tensor y = x.value().detached();
  long uses_in_earlier_node = 0;
  rig.tape.record("early", {&x.value()}, {&y}, [&](std::vector<Tensor>& gradients) {
    uses_in_earlier_node = saved.use_count();
    return std::move(gradients);
  });
  Tensor z = y.detached();
  rig.tape.record("late", {&y}, {&z},
                  [saved](std::vector<Tensor>& gradients) { return std::move(gradients); });
  CHECK(saved.use_count() == 2);
  rig.tape.backward(z, values(rig.backend, {1}));
  CHECK(uses_in_earlier_node == 1);
}

TEST_CASE("nothing is recorded while the tape is paused, and pauses nest") {
  Rig rig;
  const Leaf x(rig.tape, values(rig.backend, {1}));
  Parameter p("p", Shape{1}, {}, false);
  p.set_value(values(rig.backend, {1}));
  p.set_tape(&rig.tape);
  {
    const Tape::Pause outer(rig.tape);
    {
      const Tape::Pause inner(rig.tape);
      CHECK_FALSE(rig.tape.recording());
    }
    CHECK_FALSE(rig.tape.recording());
    CHECK_FALSE(p.recording());
    CHECK(tape_of({&x.value()}) == nullptr);
    CHECK_FALSE(ops::add(x.value(), x.value()).requires_grad());
    CHECK(on_gradient(x.value(), "hook", [] {}).autograd() == x.value().autograd());
  }
  CHECK(rig.tape.recording());
  CHECK(p.recording());
  p.set_trainable(false);
  CHECK_FALSE(p.recording());
}

TEST_CASE("on_gradient calls its hook after what was recorded later and before what was earlier") {
  Rig rig;
  std::vector<std::string> log;
  const Leaf x(rig.tape, values(rig.backend, {1}));
  const Tensor a = scaled(rig.tape, x.value(), 2, "before", &log);
  const Tensor hooked = on_gradient(a, "hook", [&] { log.push_back("hook"); });
  CHECK(hooked.data() == a.data());
  const Tensor b = scaled(rig.tape, hooked, 3, "after", &log);
  const Tensor c = scaled(rig.tape, hooked, 4, "after too", &log);
  rig.tape.backward(ops::add(b, c), values(rig.backend, {1}));
  CHECK(log == std::vector<std::string>{"after too", "after", "hook", "before"});
  CHECK(x.gradient().item() == 14);
}

// ---------------------------------------------------------------------------- Parameters

// Returns the dtype in which the contribution was stored.
DType contribute(Parameter& p, double value, bool several = false) {
  const GradientTarget target = p.begin_gradient(several);
  Backend& backend = target.tensor.backend();
  const Tensor piece = test::make_tensor(backend, p.shape(), DType::kF32,
                                         Doubles(static_cast<size_t>(p.numel()), value));
  Tensor out = target.tensor;
  if (target.accumulate) {
    backend.run(backend.compute_stream(), AddArgs{out, piece, out});
  } else {
    backend.run(backend.compute_stream(), CastArgs{piece, out});
  }
  return out.dtype();
}

// A parameter with values of `dtype` whose gradient has dtype `gradient`.
struct ParameterRig : Rig {
  ParameterRig(int64_t size, DType dtype, DType gradient) : p("p", Shape{size}, {}, false) {
    p.set_value(Tensor::zeros(backend, p.shape(), dtype));
    p.set_tape(&tape);
    p.set_gradient_memory([this, gradient] {
      ++requests;
      return Tensor::empty(backend, p.shape(), gradient);
    });
  }
  int requests = 0;  // for memory of a gradient
  Parameter p;
};

TEST_CASE("a parameter's gradient lies where it is told to, and adds up") {
  ParameterRig rig(3, DType::kF32, DType::kF32);
  rig.p.add_use();
  rig.p.add_use();
  CHECK_FALSE(rig.p.gradient().defined());
  contribute(rig.p, 1.5);
  rig.p.end_gradient();
  CHECK(rig.p.pending_uses() == 1);
  contribute(rig.p, 2);
  rig.p.end_gradient();
  CHECK(rig.requests == 1);
  CHECK(rig.p.gradient().to_doubles() == Doubles{3.5, 3.5, 3.5});
  CHECK(error_of([&] { rig.p.end_gradient(); }) == "[parameter] p: more gradients than uses");
  rig.p.clear_gradient();
  CHECK_FALSE(rig.p.gradient().defined());
}

TEST_CASE("several contributions to a bf16 gradient add up in f32 and are rounded once") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    ParameterRig rig(2, dtype, DType::kBF16);
    // 1 + 3 * 2^-9: each step rounded to bf16 (8 bits) would stay at 1.
    for (int i = 0; i < 4; ++i) rig.p.add_use();
    const Doubles pieces = {1, 0x1p-9, 0x1p-9, 0x1p-9};
    for (const double piece : pieces) {
      contribute(rig.p, piece);
      rig.p.end_gradient();
    }
    CHECK(rig.p.gradient().dtype() == DType::kBF16);
    CHECK(rig.p.gradient().to_doubles() == Doubles(2, 1 + 0x1p-7));
  }
}

TEST_CASE("one contribution in several pieces is rounded once too") {
  ParameterRig rig(1, DType::kBF16, DType::kBF16);
  rig.p.add_use();
  contribute(rig.p, 1, /*several=*/true);
  for (int i = 0; i < 3; ++i) contribute(rig.p, 0x1p-9, true);
  rig.p.end_gradient();
  CHECK(rig.p.gradient().item() == 1 + 0x1p-7);
}

TEST_CASE("a single contribution goes straight into a gradient of the compute dtype") {
  ParameterRig rig(256, DType::kBF16, DType::kBF16);
  rig.p.add_use();
  const GradientTarget target = rig.p.begin_gradient();
  CHECK(target.tensor.dtype() == DType::kBF16);
  CHECK_FALSE(target.accumulate);
  CHECK(target.tensor.data() == rig.p.gradient().data());
  rig.p.clear_gradient();
}

TEST_CASE("kernels store only what they can: other gradients go through the wide dtype") {
  for (const auto& [compute, gradient] :
       {std::pair{DType::kF32, DType::kBF16}, std::pair{DType::kF64, DType::kF32},
        std::pair{DType::kF64, DType::kBF16}}) {
    ParameterRig rig(1, compute, gradient);
    rig.p.add_use();
    CHECK(contribute(rig.p, 1 + 0x1p-20) == accumulation_dtype(compute));
    rig.p.end_gradient();
    CHECK(rig.p.gradient().dtype() == gradient);
    CHECK(rig.p.gradient().item() == (gradient == DType::kF32 ? 1 + 0x1p-20 : 1));
  }
}

TEST_CASE("a gradient of an earlier pass counts when a later one adds to a bf16 gradient") {
  ParameterRig rig(1, DType::kBF16, DType::kBF16);
  for (int pass = 0; pass < 2; ++pass) {
    rig.p.add_use();
    contribute(rig.p, 1.25);
    rig.p.end_gradient();
  }
  CHECK(rig.requests == 1);
  CHECK(rig.p.gradient().item() == 2.5);
}

TEST_CASE("a gradient that is taken before its last contribution: what came, then what comes") {
  for (const DType gradient : {DType::kF32, DType::kBF16}) {
    ParameterRig rig(1, DType::kF32, gradient);
    for (int i = 0; i < 3; ++i) rig.p.add_use();
    for (const double piece : {1.0, 0.5}) {
      contribute(rig.p, piece);
      rig.p.end_gradient();
    }
    rig.p.settle_gradient();
    CHECK(rig.p.gradient().item() == 1.5);
    rig.p.leave_gradient();
    CHECK_FALSE(rig.p.gradient().defined());
    CHECK(rig.p.pending_uses() == 1);
    contribute(rig.p, 4);
    rig.p.end_gradient();
    CHECK(rig.requests == 2);
    CHECK(rig.p.gradient().item() == 4);
  }
}

TEST_CASE("a parameter without values, or without memory for its gradient") {
  Rig rig;
  Parameter p("blocks.0.mlp.up.weight", Shape{1}, {}, false);
  CHECK(error_of([&] { p.value(); }) == "[parameter] blocks.0.mlp.up.weight: has no values yet");
  CHECK_FALSE(p.recording());
  p.set_value(test::make_tensor(rig.backend, Shape{1}, DType::kBF16, {1}));
  p.set_tape(&rig.tape);
  p.add_use();
  CHECK(p.begin_gradient().tensor.dtype() == DType::kF32);
  p.clear_gradient();
  CHECK(p.pending_uses() == 0);
}

TEST_CASE("an op used several times accumulates its weight's gradient") {
  cpu::CpuBackend backend;
  test::GradientCheck check(backend);
  check.input("x", Shape{3, 5});
  Parameter& w = check.parameter("w", Shape{5, 5});
  Parameter& b = check.parameter("b", Shape{5});
  check.run([&](const std::vector<Tensor>& in) {
    const ops::LinearWeights weights = {.weight = w, .bias = &b};
    const Tensor twice = ops::linear(ops::linear(in[0], weights), weights);
    return std::vector<Tensor>{ops::linear(twice, weights)};
  });
}

}  // namespace
}  // namespace fsdp
