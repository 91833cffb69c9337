// Calls at the ends of the model, on flat buffers, and on a few scalars.
#include "kernels/meta/call_text.h"

namespace fsdp::meta {

using Content = TensorForm::Content;

// ---- Embedding and loss ----

KernelCall embedding_forward_call(const Tensor& tokens, const Tensor& table,
                                  const Tensor* positions, int64_t first_position,
                                  const Tensor& y) {
  CallText text("embedding_forward");
  const TensorForm out = text.of(y), rows = text.of(table),
                   ids = text.beside(tokens, Content::kIndices, table.shape()[0]),
                   places = text.beside(positions, "positions");
  const int64_t of_positions = positions ? y.shape()[1] * y.shape().last() : 0;
  return text.costs(
      ops::embedding_forward_cost(y.numel(), of_positions, y.dtype()), [=](CallTensors& t) {
        return [=, y = t.make(out), table = t.make(rows), tokens = t.make(ids),
                positions = t.make(places)](Backend& backend, Stream& stream) mutable {
          backend.embedding_forward(stream, tokens, table, or_null(positions), first_position, y);
        };
      });
}

KernelCall embedding_backward_call(const Tensor& tokens, const Tensor& dy, const Tensor& dtable,
                                   bool accumulate) {
  CallText text("embedding_backward");
  const TensorForm gradient = text.of(dy), rows = text.of(dtable),
                   ids = text.beside(tokens, Content::kIndices, dtable.shape()[0]);
  text.say_if(accumulate, "added");
  const int64_t stored = accumulate ? 0 : dtable.numel();
  return text.costs(ops::embedding_backward_cost(dy.numel(), stored, dy.dtype(), dtable.dtype()),
                    [=](CallTensors& t) {
                      return [=, tokens = t.make(ids), dy = t.make(gradient),
                              dtable = t.make(rows)](Backend& backend, Stream& stream) mutable {
                        backend.embedding_backward(stream, tokens, dy, dtable, accumulate);
                      };
                    });
}

KernelCall position_backward_call(const Tensor& dy, const Tensor& dpositions, bool accumulate) {
  CallText text("position_backward");
  const TensorForm gradient = text.of(dy), rows = text.of(dpositions);
  text.say_if(accumulate, "added");
  return text.costs(
      ops::position_backward_cost(dy.numel(), dpositions.numel(), dy.dtype(), dpositions.dtype()),
      [=](CallTensors& t) {
        return [=, dy = t.make(gradient), dpositions = t.make(rows)](Backend& backend,
                                                                     Stream& stream) mutable {
          backend.position_backward(stream, dy, dpositions, accumulate);
        };
      });
}

KernelCall cross_entropy_call(const CrossEntropyArgs& args) {
  CallText text("cross_entropy");
  const int64_t V = args.vocabulary > 0 ? args.vocabulary : args.logits.shape().last();
  const TensorForm logits = text.of(args.logits), loss = text.beside(args.loss_sum),
                   labels = text.beside(args.labels, Content::kIndices, V),
                   scale = text.beside(args.loss_scale, "", Content::kOnes);
  text.say_if(V != args.logits.shape().last(), fmt::format("{} columns", V));
  TensorForm gradient = text.beside(args.dlogits, "gradient");
  text.say_if(args.dlogits && args.dlogits->dtype() != args.logits.dtype(),
              args.dlogits ? fsdp::name_of(args.dlogits->dtype()) : "");
  const int64_t elements = args.logits.shape().rows() * V;
  const ops::Cost cost = args.dlogits ? ops::cross_entropy_cost(elements, args.dlogits->dtype())
                                      : ops::cross_entropy_loss_cost(elements, args.logits.dtype());
  return text.costs(
      cost, [=, vocabulary = args.vocabulary, factor = args.gradient_scale](CallTensors& t) {
        return [=, logits = t.make(logits), labels = t.make(labels), loss = t.make(loss),
                gradient = t.make(gradient),
                scale = t.make(scale)](Backend& backend, Stream& stream) mutable {
          backend.cross_entropy(stream, {.logits = logits,
                                         .vocabulary = vocabulary,
                                         .labels = labels,
                                         .loss_sum = loss,
                                         .dlogits = or_null(gradient),
                                         .gradient_scale = factor,
                                         .loss_scale = or_null(scale)});
        };
      });
}

// ---- Flat buffers ----

namespace {

TensorForm flat(const void* address, size_t bytes) {
  return {.shape = Shape{static_cast<int64_t>((bytes + 3) / 4)},
          .dtype = DType::kF32,
          .address = address,
          .given = true};
}

KernelCall of_bytes(std::string_view kernel, size_t bytes, ops::Cost cost,
                    std::function<KernelRun(CallTensors&)> prepare) {
  return {.kernel = kernel,
          .shape = fmt::format("{} bytes", bytes),
          .dtype = DType::kF32,
          .cost = cost,
          .prepare = std::move(prepare)};
}

}  // namespace

KernelCall copy_call(const void* destination, const void* source, size_t bytes) {
  const TensorForm to = flat(destination, bytes), from = flat(source, bytes);
  return of_bytes("copy", bytes, {.bytes = 2 * static_cast<int64_t>(bytes)}, [=](CallTensors& t) {
    return [bytes, to = t.make(to), from = t.make(from)](Backend& backend, Stream& stream) {
      backend.copy(stream, to.data(), from.data(), bytes);
    };
  });
}

KernelCall fill_zero_call(const void* data, size_t bytes) {
  const TensorForm to = flat(data, bytes);
  return of_bytes("fill_zero", bytes, {.bytes = static_cast<int64_t>(bytes)}, [=](CallTensors& t) {
    return [bytes, to = t.make(to)](Backend& backend, Stream& stream) {
      backend.fill_zero(stream, to.data(), bytes);
    };
  });
}

KernelCall cast_call(const Tensor& x, const Tensor& out) {
  CallText text("cast");
  const TensorForm from = text.of(x), to = text.of(out);
  return text.costs(ops::cast_cost(x.numel(), x.dtype(), out.dtype()), [=](CallTensors& t) {
    return [x = t.make(from), out = t.make(to)](Backend& backend, Stream& stream) mutable {
      backend.cast(stream, x, out);
    };
  });
}

KernelCall divide_call(const Tensor& x, double divisor) {
  CallText text("divide");
  const TensorForm values = text.of(x);
  return text.costs(ops::divide_cost(x.numel(), x.dtype()), [=](CallTensors& t) {
    return [divisor, x = t.make(values)](Backend& backend, Stream& stream) mutable {
      backend.divide(stream, x, divisor);
    };
  });
}

KernelCall fill_normal_call(const Tensor& x, double deviation) {
  CallText text("fill_normal");
  const TensorForm values = text.of(x);
  text.say_if(deviation == 0, "a constant");
  return text.costs(ops::fill_cost(x.numel(), x.dtype()), [=](CallTensors& t) {
    return [deviation, x = t.make(values)](Backend& backend, Stream& stream) mutable {
      backend.fill_normal(stream, x, 1, deviation, /*seed=*/0, /*name_hash=*/0, 0);
    };
  });
}

KernelCall round_stochastically_call(const StochasticRoundArgs& args) {
  CallText text("round_stochastically");
  const TensorForm x = text.of(args.x), out = text.of(args.out);
  return text.costs(ops::cast_cost(args.x.numel(), args.x.dtype(), args.out.dtype()),
                    [x, out, runs = args.runs, seed = args.seed](CallTensors& t) {
                      return [runs, seed, x = t.make(x), out = t.make(out)](
                                 Backend& backend, Stream& stream) mutable {
                        backend.round_stochastically(
                            stream, {.x = x, .out = out, .runs = runs, .seed = seed});
                      };
                    });
}

// ---- The optimizer ----

namespace {

struct UpdateForm {
  TensorForm master, grad, copy, step_counts, present, learning_rate, gradient_scale, skip;
  std::vector<ShardSegment> segments;
  double weight_decay = 0;
};

UpdateForm of(const ShardUpdate& update, CallText& text) {
  return {.master = text.of(update.master),
          .grad = text.of(update.grad),
          .copy = text.beside(update.copy, "copy"),
          .step_counts = text.beside(update.step_counts, Content::kOnes),
          .present = text.beside(update.present, Content::kOnes),
          .learning_rate = text.beside(update.learning_rate, Content::kZeros),
          .gradient_scale = text.beside(update.gradient_scale, Content::kOnes),
          .skip = text.beside(update.skip, Content::kZeros),
          .segments = update.segments,
          .weight_decay = update.weight_decay};
}

class UpdateTensors {
 public:
  UpdateTensors(const UpdateForm& form, CallTensors& t)
      : master_(t.make(form.master)),
        grad_(t.make(form.grad)),
        copy_(t.make(form.copy)),
        step_counts_(t.make(form.step_counts)),
        present_(t.make(form.present)),
        learning_rate_(t.make(form.learning_rate)),
        gradient_scale_(t.make(form.gradient_scale)),
        skip_(t.make(form.skip)),
        segments_(form.segments),
        weight_decay_(form.weight_decay) {}

  ShardUpdate args() {
    return {.master = master_,
            .grad = grad_,
            .copy = or_null(copy_),
            .segments = segments_,
            .step_counts = step_counts_,
            .present = present_,
            .learning_rate = learning_rate_,
            .gradient_scale = gradient_scale_,
            .skip = skip_,
            .weight_decay = weight_decay_};
  }

 private:
  Tensor master_, grad_, copy_, step_counts_, present_, learning_rate_, gradient_scale_, skip_;
  std::vector<ShardSegment> segments_;
  double weight_decay_;
};

ops::Cost cost_of(const ShardUpdate& update, int64_t states) {
  const DType compute = update.copy ? update.copy->dtype() : update.master.dtype();
  return ops::shard_update_cost(update.master.numel(), states, compute, update.grad.dtype(),
                                update.copy != nullptr);
}

// A kernel that keeps two values of an element; kernel(backend, stream, shard, first, second).
template <typename Kernel>
KernelCall two_states_call(CallText text, const ShardUpdate& update, const Tensor& one,
                           const Tensor& other, Kernel kernel) {
  const UpdateForm shard = of(update, text);
  const TensorForm first = text.beside(one, Content::kOnes),
                   second = text.beside(other, Content::kOnes);
  return text.costs(cost_of(update, 2), [=](CallTensors& t) {
    return [kernel, shard = UpdateTensors(shard, t), first = t.make(first),
            second = t.make(second)](Backend& backend, Stream& stream) mutable {
      kernel(backend, stream, shard.args(), first, second);
    };
  });
}

}  // namespace

KernelCall adam_call(const AdamArgs& args) {
  return two_states_call(
      CallText(args.decoupled ? "adamw" : "adam"), args.shard, args.exp_avg, args.exp_avg_sq,
      [beta1 = args.beta1, beta2 = args.beta2, epsilon = args.epsilon, decoupled = args.decoupled](
          Backend& backend, Stream& stream, const ShardUpdate& shard, Tensor& first,
          Tensor& second) {
        backend.adam(stream, {.shard = shard,
                              .exp_avg = first,
                              .exp_avg_sq = second,
                              .beta1 = beta1,
                              .beta2 = beta2,
                              .epsilon = epsilon,
                              .decoupled = decoupled});
      });
}

KernelCall adamax_call(const AdamaxArgs& args) {
  return two_states_call(CallText("adamax"), args.shard, args.exp_avg, args.exp_inf,
                         [beta1 = args.beta1, beta2 = args.beta2, epsilon = args.epsilon](
                             Backend& backend, Stream& stream, const ShardUpdate& shard,
                             Tensor& first, Tensor& second) {
                           backend.adamax(stream, {.shard = shard,
                                                   .exp_avg = first,
                                                   .exp_inf = second,
                                                   .beta1 = beta1,
                                                   .beta2 = beta2,
                                                   .epsilon = epsilon});
                         });
}

KernelCall adadelta_call(const AdadeltaArgs& args) {
  return two_states_call(CallText("adadelta"), args.shard, args.square_avg, args.acc_delta,
                         [rho = args.rho, epsilon = args.epsilon](Backend& backend, Stream& stream,
                                                                  const ShardUpdate& shard,
                                                                  Tensor& first, Tensor& second) {
                           backend.adadelta(stream, {.shard = shard,
                                                     .square_avg = first,
                                                     .acc_delta = second,
                                                     .rho = rho,
                                                     .epsilon = epsilon});
                         });
}

KernelCall sgd_call(const SgdArgs& args) {
  CallText text("sgd");
  const UpdateForm shard = of(args.shard, text);
  const TensorForm buffer = text.beside(args.momentum_buffer, "momentum");
  return text.costs(cost_of(args.shard, args.momentum_buffer != nullptr),
                    [shard, buffer, momentum = args.momentum, dampening = args.dampening,
                     nesterov = args.nesterov](CallTensors& t) {
                      return [=, shard = UpdateTensors(shard, t), buffer = t.make(buffer)](
                                 Backend& backend, Stream& stream) mutable {
                        backend.sgd(stream, {.shard = shard.args(),
                                             .momentum_buffer = or_null(buffer),
                                             .momentum = momentum,
                                             .dampening = dampening,
                                             .nesterov = nesterov});
                      };
                    });
}

KernelCall power_sum_call(const PowerSumArgs& args) {
  CallText text("power_sum");
  const TensorForm x = text.of(args.x), out = text.beside(args.out, Content::kZeros);
  text.say(fmt::format("{}", args.power));
  const std::vector<int64_t> blocks =
      args.first_blocks ? *args.first_blocks : std::vector<int64_t>();
  return text.costs(
      ops::power_sum_cost(args.x.numel(), args.x.dtype()),
      [x, out, blocks, spans = args.spans, power = args.power, accumulate = args.accumulate,
       in_blocks = args.first_blocks != nullptr](CallTensors& t) {
        return [=, x = t.make(x), out = t.make(out)](Backend& backend, Stream& stream) mutable {
          backend.power_sum(stream, {.x = x,
                                     .spans = spans,
                                     .power = power,
                                     .out = out,
                                     .accumulate = accumulate,
                                     .first_blocks = in_blocks ? &blocks : nullptr});
        };
      });
}

KernelCall find_overflow_call(const OverflowArgs& args) {
  CallText text("find_overflow");
  const TensorForm x = text.of(args.x), flag = text.beside(args.flag, Content::kZeros);
  return text.costs(ops::find_overflow_cost(args.x.numel(), args.x.dtype()),
                    [x, flag, limit = args.limit](CallTensors& t) {
                      return [limit, x = t.make(x), flag = t.make(flag)](Backend& backend,
                                                                         Stream& stream) mutable {
                        backend.find_overflow(stream, {.x = x, .limit = limit, .flag = flag});
                      };
                    });
}

// ---- A few scalars ----

KernelCall advance_steps_call(const Tensor& step_counts, const Tensor& present,
                              const Tensor& skip) {
  CallText text("advance_steps");
  const TensorForm counts = text.of(step_counts), there = text.beside(present, Content::kOnes),
                   zero = text.beside(skip, Content::kZeros);
  return text.costs({}, [=](CallTensors& t) {
    return [counts = t.make(counts), there = t.make(there), zero = t.make(zero)](
               Backend& backend, Stream& stream) mutable {
      backend.advance_steps(stream, counts, there, zero);
    };
  });
}

KernelCall clip_coefficient_call(const ClipArgs& args) {
  CallText text("clip_coefficient");
  const TensorForm sum = text.of(args.power_sum), norm = text.beside(args.norm),
                   coefficient = text.beside(args.coefficient, Content::kOnes),
                   skip = text.beside(args.skip, Content::kZeros),
                   scale = text.beside(args.loss_scale, "", Content::kOnes),
                   overflow = text.beside(args.overflow, "", Content::kZeros);
  return text.costs({}, [=, power = args.power, max_norm = args.max_norm](CallTensors& t) {
    return [=, sum = t.make(sum), norm = t.make(norm), coefficient = t.make(coefficient),
            skip = t.make(skip), scale = t.make(scale),
            overflow = t.make(overflow)](Backend& backend, Stream& stream) mutable {
      backend.clip_coefficient(stream, {.power_sum = sum,
                                        .power = power,
                                        .max_norm = max_norm,
                                        .loss_scale = or_null(scale),
                                        .overflow = or_null(overflow),
                                        .norm = norm,
                                        .coefficient = coefficient,
                                        .skip = skip});
    };
  });
}

KernelCall update_loss_scale_call(const LossScaleArgs& args) {
  CallText text("update_loss_scale");
  const TensorForm scale = text.of(args.scale),
                   overflow = text.beside(args.overflow, Content::kZeros),
                   counters = text.beside(args.counters, Content::kZeros),
                   aborted = text.beside(args.aborted, Content::kZeros);
  return text.costs({}, [=, rule = args.rule](CallTensors& t) {
    return [rule, scale = t.make(scale), overflow = t.make(overflow), counters = t.make(counters),
            aborted = t.make(aborted)](Backend& backend, Stream& stream) mutable {
      backend.update_loss_scale(stream, {.rule = rule,
                                         .overflow = overflow,
                                         .scale = scale,
                                         .counters = counters,
                                         .aborted = aborted});
    };
  });
}

}  // namespace fsdp::meta
