// Element-wise ops and their gradients.
#include "core/ops/elementwise.h"

#include <utility>

#include "core/layer_args.h"
#include "core/ops/check.h"
#include "core/recompute.h"

namespace fsdp::ops {

Tensor add(const Tensor& a, const Tensor& b) {
  check_shape("add", "second operand", b.shape(), a.shape());
  check_dtype("add", "second operand", b.dtype(), a.dtype());
  Backend& backend = a.backend();
  Tensor y = Tensor::empty(backend, a.shape(), a.dtype());
  backend.run(backend.compute_stream(), AddArgs{a, b, y});
  if (Tape* tape = tape_of({&a, &b})) {
    tape->record("add", {&a, &b}, {&y}, [](std::vector<Tensor>& gradients) {
      return std::vector<Tensor>{gradients[0], gradients[0]};
    });
  }
  return y;
}

Tensor activate(const Tensor& x, Activation activation) {
  if (activation == Activation::kNone) return x;
  const auto compute = [x = x.detached(), activation] {
    Tensor y = Tensor::empty(x.backend(), x.shape(), x.dtype());
    x.backend().run(x.backend().compute_stream(), ActivationForwardArgs{activation, x, y});
    return y;
  };
  Tensor y = compute();
  if (Tape* tape = tape_of({&x})) {
    tape->record("activate", {&x}, {&y},
                 [x = x.detached(), activation](std::vector<Tensor>& gradients) {
                   Tensor dx = reuse_or_allocate(gradients[0]);
                   x.backend().run(x.backend().compute_stream(),
                                   ActivationBackwardArgs{activation, x, gradients[0], dx});
                   return std::vector<Tensor>{dx};
                 });
    leave_recipe(*tape, y, compute);
  }
  return y;
}

Tensor glu(const Tensor& gate, const Tensor& up, Activation activation) {
  check_shape("glu", "up", up.shape(), gate.shape());
  check_dtype("glu", "up", up.dtype(), gate.dtype());
  const auto compute = [gate = gate.detached(), up = up.detached(), activation] {
    Backend& backend = gate.backend();
    Tensor y = Tensor::empty(backend, gate.shape(), gate.dtype());
    backend.run(backend.compute_stream(), GluForwardArgs{activation, gate, &up, y});
    return y;
  };
  Tensor y = compute();
  if (Tape* tape = tape_of({&gate, &up})) {
    tape->record(
        "glu", {&gate, &up}, {&y},
        [gate = gate.detached(), up = up.detached(), activation](std::vector<Tensor>& gradients) {
          Backend& backend = gate.backend();
          Tensor dgate = Tensor::empty(backend, gate.shape(), gate.dtype());
          Tensor dup = reuse_or_allocate(gradients[0]);
          backend.run(backend.compute_stream(),
                      GluBackwardArgs{activation, gate, &up, gradients[0], dgate, &dup});
          return std::vector<Tensor>{dgate, dup};
        });
    leave_recipe(*tape, y, compute);
  }
  return y;
}

Tensor glu_of_halves(const Tensor& gate_up, Activation activation) {
  const int64_t both = gate_up.shape().last();
  FSDP_CHECK(both % 2 == 0, "[glu] halves: expected rows of an even number of elements, got {}",
             both);
  // Shared by backward and the recipe, which nobody takes after backward: it may write over them.
  const auto saved = std::make_shared<Tensor>(gate_up.detached());
  const auto compute = [saved, activation, shape = with_last(gate_up.shape(), both / 2)] {
    Backend& backend = saved->backend();
    Tensor y = Tensor::empty(backend, shape, saved->dtype());
    backend.run(backend.compute_stream(), GluForwardArgs{activation, *saved, nullptr, y});
    return y;
  };
  Tensor y = compute();
  if (Tape* tape = tape_of({&gate_up})) {
    tape->record("glu", {&gate_up}, {&y}, [saved, activation](std::vector<Tensor>& gradients) {
      const Tensor values = std::exchange(*saved, Tensor());
      Tensor gradient = reuse_or_allocate(values);
      values.backend().run(
          values.backend().compute_stream(),
          GluBackwardArgs{activation, values, nullptr, gradients[0], gradient, nullptr});
      return std::vector<Tensor>{gradient};
    });
    leave_recipe(*tape, y, compute);
  }
  return y;
}

Dropout dropout_args(const ForwardContext& context, double probability, int64_t layer,
                     DropoutSite site) {
  if (!context.training || probability == 0) return {};
  FSDP_CHECK(probability > 0 && probability < 1,
             "[dropout] probability: expected within [0, 1), got {}", probability);
  FSDP_CHECK(context.samples, "[dropout] samples: needs the global sample index of every row");
  Dropout args = {.probability = probability, .key = context.dropout, .samples = context.samples};
  args.key.layer = static_cast<uint32_t>(layer);
  args.key.site = static_cast<uint32_t>(site);
  return args;
}

Tensor dropout(const Tensor& x, const Dropout& args) {
  if (args.probability == 0) return x;
  check_shape("dropout", "samples", args.samples->shape(), Shape{x.shape()[0]});
  Backend& backend = x.backend();
  Tensor y = Tensor::empty(backend, x.shape(), x.dtype());
  backend.run(backend.compute_stream(), DropoutArgs{args, x, y});
  if (Tape* tape = tape_of({&x})) {
    tape->record(
        "dropout", {&x}, {&y},
        [args, samples = args.samples->detached()](std::vector<Tensor>& gradients) {
          Tensor dx = reuse_or_allocate(gradients[0]);
          Dropout again = args;
          again.samples = &samples;
          dx.backend().run(dx.backend().compute_stream(), DropoutArgs{again, gradients[0], dx});
          return std::vector<Tensor>{dx};
        });
  }
  return y;
}

}  // namespace fsdp::ops
