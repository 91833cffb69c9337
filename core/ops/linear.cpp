// Linear layer: y = x W + b, dx = dy W^T, dW = x^T dy, db = column sums of dy. A term added to
// another layer's result passes that one's gradient through. Several layers whose parameters lie
// side by side are one whose W and b are longer.
#include "core/ops/linear.h"

#include <algorithm>
#include <optional>

#include "core/layer_args.h"
#include "core/ops/check.h"
#include "core/parameter_span.h"
#include "core/recompute.h"
#include "core/shard_args.h"

namespace fsdp::ops {
namespace {

// Of one layer, or of several.
struct Weights {
  ParameterSpan weight;
  std::optional<ParameterSpan> bias;
  WeightLayout layout = WeightLayout::kOutIn;

  explicit Weights(const LinearWeights& w) : weight(w.weight), layout(w.layout) {
    if (w.bias) bias.emplace(*w.bias);
  }
  explicit Weights(const std::vector<LinearWeights>& layers) : weight(weights_of(layers)) {
    if (layers[0].bias) bias.emplace(biases_of(layers));
  }
  static std::vector<Parameter*> weights_of(const std::vector<LinearWeights>& layers) {
    std::vector<Parameter*> out;
    for (const LinearWeights& layer : layers) out.push_back(&layer.weight);
    return out;
  }
  static std::vector<Parameter*> biases_of(const std::vector<LinearWeights>& layers) {
    std::vector<Parameter*> out;
    for (const LinearWeights& layer : layers) out.push_back(layer.bias);
    return out;
  }
};

struct LinearExtents {
  int64_t rows, in, out;
};

LinearExtents check_linear(const Tensor& x, const Weights& w) {
  const bool out_in = w.layout == WeightLayout::kOutIn;
  const Shape shape = w.weight.shape();
  FSDP_CHECK(shape.rank() == 2, "[linear] weight {}: expected rank 2, got {}", w.weight.name(),
             shape.str());
  const LinearExtents e = {x.shape().rows(), x.shape().last(), out_in ? shape[0] : shape[1]};
  FSDP_CHECK((out_in ? shape[1] : shape[0]) == e.in,
             "[linear] weight {}: expected {} inputs, got {}", w.weight.name(), e.in, shape.str());
  check_dtype("linear", w.weight.name(), w.weight.value().dtype(), x.dtype());
  if (w.bias) check_shape("linear", w.bias->name(), w.bias->shape(), Shape{e.out});
  return e;
}

// `bias_summed`: the gradient of the bias is there already.
void weight_gradient(const SavedValue& x, const Tensor& dy, const Weights& w,
                     const LinearExtents& e, bool bias_summed = false) {
  Backend& backend = dy.backend();
  Stream& stream = backend.compute_stream();
  const Tensor dy2 = dy.view(Shape{e.rows, e.out});
  if (w.weight.trainable()) {
    const Tensor x2 = x.take().view(Shape{e.rows, e.in});
    GradientTarget target = w.weight.begin_gradient();
    const bool out_in = w.layout == WeightLayout::kOutIn;
    backend.run(stream, MatmulArgs{.a = out_in ? dy2 : x2,
                                   .b = out_in ? x2 : dy2,
                                   .c = target.tensor,
                                   .transpose_a = true,
                                   .accumulate = target.accumulate});
    w.weight.end_gradient();
  }
  if (w.bias && w.bias->trainable()) {
    if (!bias_summed) {
      GradientTarget target = w.bias->begin_gradient();
      backend.run(stream,
                  SumRowsArgs{.x = dy2, .out = target.tensor, .accumulate = target.accumulate});
    }
    w.bias->end_gradient();
  }
}

// dy becomes the gradient of what the activation was given; that of the bias, its sum, comes with
// it. Who calls ends the bias's gradient.
void activation_gradient(Tensor& dy, const Tensor& pre, Activation activation, const Weights& w) {
  Tensor dpre = reuse_or_allocate(dy);
  GradientTarget bias;
  const bool sums = w.bias && w.bias->trainable();
  if (sums) bias = w.bias->begin_gradient();
  dy.backend().run(dy.backend().compute_stream(),
                   ActivationBackwardArgs{.kind = activation,
                                          .x = pre,
                                          .dy = dy,
                                          .dx = dpre,
                                          .dbias = sums ? &bias.tensor : nullptr,
                                          .accumulate_bias = bias.accumulate});
  dy = dpre;
}

Tensor input_gradient(const Tensor& dy, const Shape& shape, const Weights& w,
                      const LinearExtents& e) {
  Backend& backend = dy.backend();
  Tensor dx = Tensor::empty(backend, shape, dy.dtype());
  Tensor dx2 = dx.view(Shape{e.rows, e.in});
  backend.run(backend.compute_stream(),
              MatmulArgs{.a = dy.view(Shape{e.rows, e.out}),
                         .b = w.weight.value(),
                         .c = dx2,
                         .transpose_b = w.layout == WeightLayout::kInOut});
  return dx;
}

Tensor linear_of(const Tensor& x, const Weights& w, Activation activation) {
  const LinearExtents e = check_linear(x, w);
  Backend& backend = x.backend();
  Stream& stream = backend.compute_stream();
  const Shape out_shape = with_last(x.shape(), e.out);
  Tensor y = Tensor::empty(backend, out_shape, x.dtype());
  Tensor pre;  // x W + b
  if (activation != Activation::kNone) pre = Tensor::empty(backend, out_shape, x.dtype());
  Tensor y2 = y.view(Shape{e.rows, e.out});
  Tensor pre2 = pre.defined() ? pre.view(y2.shape()) : Tensor();
  const Tensor bias = w.bias ? w.bias->value() : Tensor();
  backend.run(stream, MatmulArgs{.a = x.view(Shape{e.rows, e.in}),
                                 .b = w.weight.value(),
                                 .c = y2,
                                 .transpose_b = w.layout == WeightLayout::kOutIn,
                                 .bias = w.bias ? &bias : nullptr,
                                 .activation = activation,
                                 .pre_activation = pre.defined() ? &pre2 : nullptr});

  const bool parameters = w.weight.recording() || (w.bias && w.bias->recording());
  Tape* tape = parameters ? (w.weight.recording() ? w.weight : *w.bias).tape() : tape_of({&x});
  if (!tape) return y;
  if (w.weight.recording()) w.weight.add_use();
  if (w.bias && w.bias->recording()) w.bias->add_use();
  const SavedValue saved = w.weight.recording() ? SavedValue(x) : SavedValue();
  tape->record("linear", {&x}, {&y},
               [saved, shape = x.shape(), pre, w, e, activation,
                wants_dx = x.requires_grad()](std::vector<Tensor>& gradients) {
                 Tensor dy = std::move(gradients[0]);
                 const bool activated = activation != Activation::kNone;
                 if (activated) activation_gradient(dy, pre, activation, w);
                 Tensor dx;
                 if (wants_dx) dx = input_gradient(dy, shape, w, e);
                 weight_gradient(saved, dy, w, e, /*bias_summed=*/activated);
                 return std::vector<Tensor>{dx};
               });
  if (pre.defined()) {
    leave_recipe(*tape, y, [pre, activation] {
      Tensor again = Tensor::empty(pre.backend(), pre.shape(), pre.dtype());
      pre.backend().run(pre.backend().compute_stream(),
                        ActivationForwardArgs{activation, pre, again});
      return again;
    });
  }
  return y;
}

}  // namespace

Tensor linear(const Tensor& x, const LinearWeights& weights, Activation activation) {
  return linear_of(x, Weights(weights), activation);
}

Tensor linear(const Tensor& x, const std::vector<LinearWeights>& layers) {
  return linear_of(x, Weights(layers), Activation::kNone);
}

bool side_by_side(const std::vector<LinearWeights>& layers) {
  const auto same_kind = [&](const LinearWeights& layer) {
    return layer.layout == WeightLayout::kOutIn && !layer.bias == !layers[0].bias;
  };
  return std::all_of(layers.begin(), layers.end(), same_kind) &&
         ParameterSpan::side_by_side(Weights::weights_of(layers)) &&
         (!layers[0].bias || ParameterSpan::side_by_side(Weights::biases_of(layers)));
}

Tensor add_linear(const Tensor& y, Tensor x, const LinearWeights& weights, double scale) {
  const Weights w(weights);
  const LinearExtents e = check_linear(x, w);
  check_shape("add_linear", "y", y.shape(), with_last(x.shape(), e.out));
  check_dtype("add_linear", "y", y.dtype(), x.dtype());
  FSDP_CHECK(!w.bias, "[add_linear] bias: expected none");
  FSDP_CHECK(scale != 0, "[add_linear] scale: expected anything but 0");
  Backend& backend = x.backend();
  Stream& stream = backend.compute_stream();
  backend.run(stream, DivideArgs{x, 1 / scale});
  Tensor sum = y.detached();
  Tensor sum2 = sum.view(Shape{e.rows, e.out});
  backend.run(stream, MatmulArgs{.a = x.view(Shape{e.rows, e.in}),
                                 .b = w.weight.value(),
                                 .c = sum2,
                                 .transpose_b = w.layout == WeightLayout::kOutIn,
                                 .accumulate = true});
  Tape* tape = w.weight.recording() ? w.weight.tape() : tape_of({&y, &x});
  if (!tape) return sum;
  if (w.weight.recording()) w.weight.add_use();
  const SavedValue saved = w.weight.recording() ? SavedValue(x) : SavedValue();
  tape->record("add_linear", {&y, &x}, {&sum},
               [saved, shape = x.shape(), w, e, scale,
                wants_dx = x.requires_grad()](std::vector<Tensor>& gradients) {
                 const Tensor dy = std::move(gradients[0]);
                 Tensor dx;
                 if (wants_dx) {
                   dx = input_gradient(dy, shape, w, e);
                   dx.backend().run(dx.backend().compute_stream(), DivideArgs{dx, 1 / scale});
                 }
                 weight_gradient(saved, dy, w, e);
                 return std::vector<Tensor>{dy, dx};
               });
  return sum;
}

}  // namespace fsdp::ops
