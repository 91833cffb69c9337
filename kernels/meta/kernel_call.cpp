// Calls on activations: products, attention, norms and other passes over rows.
#include "kernels/meta/kernel_call.h"

#include <array>

#include "kernels/meta/call_text.h"

namespace fsdp::meta {

using Content = TensorForm::Content;

std::string_view name_of(Activation kind) {
  constexpr std::array<std::string_view, 16> kNames = {
      "no activation", "gelu_tanh",  "gelu_erf", "gelu_bloom",   "relu",  "gelu_fast",
      "gelu_clipped",  "quick_gelu", "silu",     "relu_squared", "relu6", "leaky_relu",
      "tanh",          "sigmoid",    "mish",     "laplace"};
  return kNames.at(static_cast<size_t>(kind));
}

// ---- Products ----

namespace {

ops::MatmulExtents extents_of(const MatmulArgs& args) {
  const Shape &b = args.b.shape(), &c = args.c.shape();
  ops::MatmulExtents e = {.m = c[0],
                          .n = args.transpose_b ? b[0] : b[1],
                          .k = args.transpose_b ? b[1] : b[0],
                          .transpose_a = args.transpose_a,
                          .transpose_b = args.transpose_b,
                          .accumulate = args.accumulate,
                          .operand = args.a.dtype(),
                          .result = args.c.dtype()};
  const int64_t columns = e.transpose_a ? e.m : e.k;
  if (args.a.shape()[1] != columns) e.row_a = args.a.shape()[1];
  if (c[1] != e.n) e.row_c = c[1];
  return e;
}

}  // namespace

// [Note: what comes from memory] Weights and their gradients lie in memory that the step has not
// touched for long. The other operands of a product are activations, of which the step has just
// written one at least. A weight gradient is the product whose first operand is transposed.
KernelCall matmul_call(const MatmulArgs& args) {
  CallText text("matmul");
  const bool gradient = args.transpose_a;
  const TensorForm a = text.of(args.a, false), b = text.of(args.b, !gradient),
                   c = text.of(args.c, gradient);
  text.say_if(args.transpose_a, "a transposed");
  text.say_if(args.transpose_b, "b transposed");
  text.say_if(args.accumulate, "added");
  const TensorForm bias = text.beside(args.bias, "bias"),
                   before = text.beside(args.pre_activation, name_of(args.activation));
  const ops::MatmulExtents extents = extents_of(args);
  ops::Cost cost = ops::matmul_cost(extents);
  if (args.pre_activation) cost.bytes += static_cast<int64_t>(args.pre_activation->bytes());
  KernelCall call = text.costs(
      cost, [a, b, c, bias, before, transpose_a = args.transpose_a, transpose_b = args.transpose_b,
             accumulate = args.accumulate, activation = args.activation](CallTensors& t) {
        return [=, a = t.make(a), b = t.make(b), c = t.make(c), bias = t.make(bias),
                before = t.make(before)](Backend& backend, Stream& stream) mutable {
          backend.matmul(stream, {.a = a,
                                  .b = b,
                                  .c = c,
                                  .transpose_a = transpose_a,
                                  .transpose_b = transpose_b,
                                  .accumulate = accumulate,
                                  .bias = or_null(bias),
                                  .activation = activation,
                                  .pre_activation = or_null(before)});
        };
      });
  call.product = extents;
  return call;
}

KernelCall sum_rows_call(const SumRowsArgs& args) {
  CallText text("sum_rows");
  const TensorForm x = text.of(args.x), out = text.of(args.out);
  text.say_if(args.accumulate, "added");
  return text.costs(ops::sum_rows_cost(args.x.shape().rows() * args.out.numel(), args.x.dtype()),
                    [x, out, accumulate = args.accumulate](CallTensors& t) {
                      return [=, x = t.make(x), out = t.make(out)](Backend& backend,
                                                                   Stream& stream) mutable {
                        backend.sum_rows(stream, {.x = x, .out = out, .accumulate = accumulate});
                      };
                    });
}

// ---- Attention ----

namespace {

struct HeadForm {
  TensorForm tensor;
  HeadView view;
};

HeadForm of(const HeadView& view, CallText& text, bool said) {
  HeadForm form = {said ? text.of(*view.tensor) : text.beside(*view.tensor), view};
  form.view.tensor = nullptr;
  return form;
}

struct HeadTensor {
  HeadTensor(const HeadForm& form, CallTensors& tensors)
      : tensor(tensors.make(form.tensor)), form_(form.view) {}
  HeadView view() const {
    HeadView out = form_;
    out.tensor = &tensor;
    return out;
  }

  Tensor tensor;

 private:
  HeadView form_;
};

// What both attention kernels are given.
struct AttentionForm {
  HeadForm q, k, v;
  TensorForm key_bias, samples;
  AttentionArgs args;  // without tensors
};

AttentionForm of(const AttentionArgs& args, CallText& text) {
  AttentionForm form = {.q = of(args.q, text, true),
                        .k = of(args.k, text, true),
                        .v = of(args.v, text, false),
                        .key_bias = {},
                        .samples = {},
                        .args = args};
  text.say(fmt::format("{} heads of {}", args.q.heads, args.q.head_dim));
  text.say_if(args.k.heads != args.q.heads, fmt::format("{} of keys", args.k.heads));
  text.say_if(args.keys > 0, fmt::format("{} keys", args.keys));
  text.say_if(!args.causal, "not causal");
  text.say_if(args.window > 0, fmt::format("window {}", args.window));
  text.say_if(args.dropout.probability > 0, "dropout");
  form.key_bias = text.beside(args.key_bias, args.hides_keys ? "hiding bias" : "bias");
  form.samples = text.beside(args.dropout.samples, "", Content::kZeros);
  return form;
}

ops::AttentionExtents extents_of(const AttentionArgs& args) {
  return {.batch = args.q.tensor->shape()[0],
          .heads = args.q.heads,
          .kv_heads = args.k.heads,
          .queries = args.q.tensor->shape()[1],
          .keys = args.keys > 0 ? args.keys : args.k.tensor->shape()[1],
          .head_dim = args.q.head_dim,
          .causal = args.causal};
}

struct AttentionTensors {
  AttentionTensors(const AttentionForm& form, CallTensors& tensors)
      : q(form.q, tensors),
        k(form.k, tensors),
        v(form.v, tensors),
        key_bias(tensors.make(form.key_bias)),
        samples(tensors.make(form.samples)),
        args_(form.args) {}
  AttentionArgs args() const {
    AttentionArgs out = args_;
    out.q = q.view();
    out.k = k.view();
    out.v = v.view();
    out.key_bias = or_null(key_bias);
    out.dropout.samples = or_null(samples);
    return out;
  }

  HeadTensor q, k, v;
  Tensor key_bias, samples;

 private:
  AttentionArgs args_;
};

}  // namespace

KernelCall attention_forward_call(const AttentionForwardArgs& args) {
  CallText text("attention_forward");
  const AttentionForm in = of(args.in, text);
  const TensorForm out = text.beside(args.out), sums = text.beside(args.log_sum_exp);
  return text.costs(ops::attention_forward_cost(extents_of(args.in), args.out.dtype()),
                    [in, out, sums](CallTensors& t) {
                      return [in = AttentionTensors(in, t), out = t.make(out), sums = t.make(sums)](
                                 Backend& backend, Stream& stream) mutable {
                        backend.attention_forward(
                            stream, {.in = in.args(), .out = out, .log_sum_exp = sums});
                      };
                    });
}

KernelCall attention_backward_call(const AttentionBackwardArgs& args) {
  CallText text("attention_backward");
  const AttentionForm in = of(args.in, text);
  const TensorForm out = text.beside(args.out), sums = text.beside(args.log_sum_exp),
                   dout = text.beside(args.dout), delta = text.beside(args.delta);
  const HeadForm dq = of(args.dq, text, false), dk = of(args.dk, text, false),
                 dv = of(args.dv, text, false);
  return text.costs(ops::attention_backward_cost(extents_of(args.in), args.out.dtype()),
                    [=](CallTensors& t) {
                      return [in = AttentionTensors(in, t), out = t.make(out), sums = t.make(sums),
                              dout = t.make(dout), delta = t.make(delta), dq = HeadTensor(dq, t),
                              dk = HeadTensor(dk, t),
                              dv = HeadTensor(dv, t)](Backend& backend, Stream& stream) mutable {
                        backend.attention_backward(stream, {.in = in.args(),
                                                            .out = out,
                                                            .log_sum_exp = sums,
                                                            .dout = dout,
                                                            .delta = delta,
                                                            .dq = dq.view(),
                                                            .dk = dk.view(),
                                                            .dv = dv.view()});
                      };
                    });
}

KernelCall rope_call(const RopeArgs& args) {
  CallText text("rope");
  const HeadForm x = of(args.x, text, true);
  const TensorForm cos = text.beside(args.cos), sin = text.beside(args.sin);
  const int64_t rotated = 2 * args.cos.shape().last();
  text.say(fmt::format("{} of {} heads", rotated, args.x.heads));
  const Shape& shape = args.x.tensor->shape();
  return text.costs(
      ops::rope_cost(shape[0] * shape[1] * args.x.heads * rotated, args.x.tensor->dtype()),
      [x, cos, sin, first = args.first_position, inverse = args.inverse](CallTensors& t) {
        return [x = HeadTensor(x, t), cos = t.make(cos), sin = t.make(sin), first, inverse](
                   Backend& backend, Stream& stream) {
          backend.rope(
              stream,
              {.x = x.view(), .cos = cos, .sin = sin, .first_position = first, .inverse = inverse});
        };
      });
}

KernelCall copy_heads_call(const HeadView& from, const HeadView& to, int64_t first) {
  CallText text("copy_heads");
  const HeadForm source = of(from, text, true), destination = of(to, text, false);
  text.say(fmt::format("{} heads of {}", from.heads, from.head_dim));
  const Shape& shape = from.tensor->shape();
  const int64_t elements = shape[0] * shape[1] * from.heads * from.head_dim;
  return text.costs(ops::copy_cost(elements, from.tensor->dtype()), [=](CallTensors& t) {
    return [from = HeadTensor(source, t), to = HeadTensor(destination, t), first](Backend& backend,
                                                                                  Stream& stream) {
      backend.copy_heads(stream, from.view(), to.view(), first);
    };
  });
}

// ---- Norms ----

KernelCall norm_forward_call(bool layer_norm, const NormForwardArgs& args) {
  CallText text(layer_norm ? "layer_norm_forward" : "rms_norm_forward");
  const TensorForm x = text.of(args.x), weight = text.beside(args.weight), y = text.beside(args.y),
                   rstd = text.beside(args.rstd, Content::kOnes),
                   residual = text.beside(args.residual, "residual"),
                   sum = text.beside(args.sum, ""), bias = text.beside(args.bias, ""),
                   mean = text.beside(args.mean, "");
  return text.costs(
      ops::norm_forward_cost(args.x.numel(), args.x.dtype(), args.residual != nullptr),
      [=, epsilon = args.epsilon](CallTensors& t) {
        return [=, x = t.make(x), weight = t.make(weight), y = t.make(y), rstd = t.make(rstd),
                residual = t.make(residual), sum = t.make(sum), bias = t.make(bias),
                mean = t.make(mean)](Backend& backend, Stream& stream) mutable {
          const NormForwardArgs again = {.x = x,
                                         .residual = or_null(residual),
                                         .sum = or_null(sum),
                                         .weight = weight,
                                         .bias = or_null(bias),
                                         .y = y,
                                         .mean = or_null(mean),
                                         .rstd = rstd,
                                         .epsilon = epsilon};
          layer_norm ? backend.layer_norm_forward(stream, again)
                     : backend.rms_norm_forward(stream, again);
        };
      });
}

KernelCall norm_backward_call(bool layer_norm, const NormBackwardArgs& args) {
  CallText text(layer_norm ? "layer_norm_backward" : "rms_norm_backward");
  const TensorForm dy = text.of(args.dy), x = text.beside(args.x),
                   weight = text.beside(args.weight), dx = text.beside(args.dx),
                   rstd = text.beside(args.rstd, Content::kOnes),
                   dsum = text.beside(args.dsum, "dsum"), mean = text.beside(args.mean, ""),
                   dweight = text.beside(args.dweight, "dweight"),
                   dbias = text.beside(args.dbias, "dbias");
  const bool add_weight = args.accumulate_weight, add_bias = args.accumulate_bias;
  return text.costs(ops::norm_backward_cost(args.x.numel(), args.x.dtype(), args.dsum != nullptr),
                    [=](CallTensors& t) {
                      return [=, dy = t.make(dy), x = t.make(x), weight = t.make(weight),
                              dx = t.make(dx), rstd = t.make(rstd), dsum = t.make(dsum),
                              mean = t.make(mean), dweight = t.make(dweight),
                              dbias = t.make(dbias)](Backend& backend, Stream& stream) mutable {
                        const NormBackwardArgs again = {.dy = dy,
                                                        .dsum = or_null(dsum),
                                                        .x = x,
                                                        .weight = weight,
                                                        .mean = or_null(mean),
                                                        .rstd = rstd,
                                                        .dx = dx,
                                                        .dweight = or_null(dweight),
                                                        .dbias = or_null(dbias),
                                                        .accumulate_weight = add_weight,
                                                        .accumulate_bias = add_bias};
                        layer_norm ? backend.layer_norm_backward(stream, again)
                                   : backend.rms_norm_backward(stream, again);
                      };
                    });
}

// ---- Elementwise ----

KernelCall activation_forward_call(Activation kind, const Tensor& x, const Tensor& y) {
  CallText text("activation_forward");
  const TensorForm in = text.of(x), out = text.beside(y);
  text.say(name_of(kind));
  return text.costs(ops::activation_forward_cost(x.numel(), x.dtype()), [=](CallTensors& t) {
    return [kind, x = t.make(in), y = t.make(out)](Backend& backend, Stream& stream) mutable {
      backend.activation_forward(stream, kind, x, y);
    };
  });
}

KernelCall activation_backward_call(Activation kind, const Tensor& x, const Tensor& dy,
                                    const Tensor& dx) {
  CallText text("activation_backward");
  const TensorForm in = text.of(x), gradient = text.beside(dy), out = text.beside(dx);
  text.say(name_of(kind));
  return text.costs(ops::activation_backward_cost(x.numel(), x.dtype()), [=](CallTensors& t) {
    return [kind, x = t.make(in), dy = t.make(gradient), dx = t.make(out)](Backend& backend,
                                                                           Stream& stream) mutable {
      backend.activation_backward(stream, kind, x, dy, dx);
    };
  });
}

KernelCall glu_forward_call(Activation kind, const Tensor& gate, const Tensor& up,
                            const Tensor& y) {
  CallText text("glu_forward");
  const TensorForm first = text.of(gate), second = text.beside(up), out = text.beside(y);
  text.say(name_of(kind));
  return text.costs(ops::glu_forward_cost(y.numel(), y.dtype()), [=](CallTensors& t) {
    return [kind, gate = t.make(first), up = t.make(second), y = t.make(out)](
               Backend& backend, Stream& stream) mutable {
      backend.glu_forward(stream, kind, gate, up, y);
    };
  });
}

KernelCall glu_backward_call(Activation kind, const Tensor& gate, const Tensor& up,
                             const Tensor& dy, const Tensor& dgate, const Tensor& dup) {
  CallText text("glu_backward");
  const TensorForm first = text.of(gate), second = text.beside(up), gradient = text.beside(dy),
                   dfirst = text.beside(dgate), dsecond = text.beside(dup);
  text.say(name_of(kind));
  return text.costs(ops::glu_backward_cost(dy.numel(), dy.dtype()), [=](CallTensors& t) {
    return
        [kind, gate = t.make(first), up = t.make(second), dy = t.make(gradient),
         dgate = t.make(dfirst), dup = t.make(dsecond)](Backend& backend, Stream& stream) mutable {
          backend.glu_backward(stream, kind, gate, up, dy, dgate, dup);
        };
  });
}

KernelCall dropout_call(const DropoutArgs& args, const Tensor& x, const Tensor& y) {
  CallText text("dropout");
  const TensorForm in = text.of(x), out = text.beside(y),
                   samples = text.beside(args.samples, "", Content::kZeros);
  return text.costs(
      ops::dropout_cost(x.numel(), x.dtype()),
      [in, out, samples, probability = args.probability, key = args.key](CallTensors& t) {
        return [x = t.make(in), y = t.make(out), samples = t.make(samples), probability, key](
                   Backend& backend, Stream& stream) mutable {
          backend.dropout(
              stream, {.probability = probability, .key = key, .samples = or_null(samples)}, x, y);
        };
      });
}

KernelCall add_call(const Tensor& a, const Tensor& b, const Tensor& out) {
  CallText text("add");
  const TensorForm first = text.of(a), second = text.of(b), sum = text.of(out);
  return text.costs(ops::add_cost(a.numel(), a.dtype()), [=](CallTensors& t) {
    return [a = t.make(first), b = t.make(second), out = t.make(sum)](
               Backend& backend, Stream& stream) mutable { backend.add(stream, a, b, out); };
  });
}

}  // namespace fsdp::meta
