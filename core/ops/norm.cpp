// Norms with the residual add before them and the gradient add behind them.
#include "core/ops/norm.h"

#include "core/layer_args.h"
#include "core/ops/check.h"
#include "core/recompute.h"

namespace fsdp::ops {
namespace {

struct SavedNorm {
  Tensor stream, mean, rstd;
};

// Gradients of (stream, y) -> gradient of x, which is the gradient of the residual too.
Tensor norm_backward(const SavedNorm& saved, const NormWeights& w, std::vector<Tensor>& gradients) {
  const Tensor& dstream = gradients[0];
  if (!gradients[1].defined()) {  // y went unused: its contribution is nothing, but has come
    if (w.weight.trainable()) w.weight.end_gradient();
    if (w.bias && w.bias->trainable()) w.bias->end_gradient();
    return dstream;
  }
  Backend& backend = saved.stream.backend();
  Tensor dx = reuse_or_allocate(gradients[1]);
  GradientTarget dweight, dbias;
  const bool train_weight = w.weight.trainable();
  const bool train_bias = w.bias && w.bias->trainable();
  if (train_weight) dweight = w.weight.begin_gradient();
  if (train_bias) dbias = w.bias->begin_gradient();
  const NormBackwardArgs args = {.dy = gradients[1],
                                 .dsum = dstream.defined() ? &dstream : nullptr,
                                 .x = saved.stream,
                                 .weight = w.weight.value(),
                                 .mean = w.bias ? &saved.mean : nullptr,
                                 .rstd = saved.rstd,
                                 .dx = dx,
                                 .dweight = train_weight ? &dweight.tensor : nullptr,
                                 .dbias = train_bias ? &dbias.tensor : nullptr,
                                 .accumulate_weight = dweight.accumulate,
                                 .accumulate_bias = dbias.accumulate};
  if (w.bias) {
    backend.run(backend.compute_stream(), LayerNormBackwardArgs{args});
  } else {
    backend.run(backend.compute_stream(), RmsNormBackwardArgs{args});
  }
  if (train_weight) w.weight.end_gradient();
  if (train_bias) w.bias->end_gradient();
  return dx;
}

struct NormValues {
  Tensor weight, bias;  // bias undefined: RMS norm
  double epsilon;
};

NormValues values_of(const NormWeights& w) {
  return {w.weight.value(), w.bias ? w.bias->value() : Tensor(), w.epsilon};
}

Tensor copy_of(const Tensor& x) {
  if (!x.defined()) return x;
  Tensor copy = Tensor::empty(x.backend(), x.shape(), x.dtype());
  x.backend().copy(x.backend().compute_stream(), copy.data(), x.data(), x.bytes());
  return copy;
}

// Writes out.y, out.stream where there is a residual, and the statistics.
void norm_forward(const Tensor& x, const Tensor& residual, const NormValues& w, SavedNorm saved,
                  NormOutput& out) {
  Backend& backend = x.backend();
  const NormForwardArgs args = {.x = x,
                                .residual = residual.defined() ? &residual : nullptr,
                                .sum = residual.defined() ? &out.stream : nullptr,
                                .weight = w.weight,
                                .bias = w.bias.defined() ? &w.bias : nullptr,
                                .y = out.y,
                                .mean = w.bias.defined() ? &saved.mean : nullptr,
                                .rstd = saved.rstd,
                                .epsilon = w.epsilon};
  if (w.bias.defined()) {
    backend.run(backend.compute_stream(), LayerNormForwardArgs{args});
  } else {
    backend.run(backend.compute_stream(), RmsNormForwardArgs{args});
  }
}

}  // namespace

NormOutput norm(const Tensor& x, const Tensor& residual, const NormWeights& w) {
  const char* op = w.bias ? "layer_norm" : "rms_norm";
  const int64_t channels = x.shape().last();
  check_shape(op, w.weight.name(), w.weight.shape(), Shape{channels});
  check_dtype(op, w.weight.name(), w.weight.value().dtype(), x.dtype());
  if (w.bias) check_shape(op, w.bias->name(), w.bias->shape(), Shape{channels});
  if (residual.defined()) {
    check_shape(op, "residual", residual.shape(), x.shape());
    check_dtype(op, "residual", residual.dtype(), x.dtype());
  }

  Backend& backend = x.backend();
  const DType wide = accumulation_dtype(x.dtype());
  const Shape rows = {x.shape().rows()};
  SavedNorm saved;
  saved.stream = residual.defined() ? Tensor::empty(backend, x.shape(), x.dtype()) : x.detached();
  if (w.bias) saved.mean = Tensor::empty(backend, rows, wide);
  saved.rstd = Tensor::empty(backend, rows, wide);
  NormOutput out = {saved.stream, Tensor::empty(backend, x.shape(), x.dtype())};
  norm_forward(x, residual, values_of(w), saved, out);

  const bool parameters = w.weight.recording() || (w.bias && w.bias->recording());
  Tape* tape = parameters ? w.weight.tape() : tape_of({&x, &residual});
  if (!tape) return out;
  if (w.weight.recording()) w.weight.add_use();
  if (w.bias && w.bias->recording()) w.bias->add_use();
  tape->record(op, {&x, &residual}, {&out.stream, &out.y},
               [saved, w](std::vector<Tensor>& gradients) {
                 Tensor dx = norm_backward(saved, w, gradients);
                 return std::vector<Tensor>{dx, dx};
               });
  if (!tape->selective()) return out;
  // From the stream, which is rounded before it is normalised: the same bits. With copies of the
  // weights: the norm may lie in another FSDP unit than who needs y again, sharded by then.
  NormValues values = values_of(w);
  values.weight = copy_of(values.weight);
  values.bias = copy_of(values.bias);
  leave_recipe(*tape, out.y, [saved, values] {
    const Tensor& x = saved.stream;
    NormOutput again = {x, Tensor::empty(x.backend(), x.shape(), x.dtype())};
    norm_forward(x, Tensor(), values, saved, again);
    return again.y;
  });
  return out;
}

}  // namespace fsdp::ops
