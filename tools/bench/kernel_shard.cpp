// Lines of the table: kernels that pass over the flat shard of a unit (copies, casts, the norm and
// the optimizer), and those that work on a few scalars.
#include <limits>

#include <fmt/format.h>

#include "tools/bench/kernel_case.h"

namespace fsdp::tools {
namespace {

// What the lines below are written in.
struct ShardExtents {
  explicit ShardExtents(const KernelExtents& extents)
      : n(extents.elements),
        dtype(extents.compute),
        master(accumulation_dtype(extents.compute)),
        gradient(extents.gradient) {}

  int64_t n;
  DType dtype, master, gradient;
  bool has_copy() const { return dtype != master; }  // the values in the compute dtype
};

std::string text(const ShardExtents& e) { return fmt::format("{}", e.n); }

// ---------------------------------------------------------------------------- Moving and filling

void add_memory(const ShardExtents& e, std::vector<KernelCase>& table) {
  table.push_back(copy_line(e.n, e.dtype));
  table.push_back({"fill_zero",
                   "",
                   text(e),
                   ops::fill_cost(e.n, e.gradient),
                   {},
                   [=](KernelInputs& in) -> KernelRun {
                     const Tensor x = in.normal(Shape{e.n}, e.gradient);
                     return [=](Backend& backend, Stream& stream) {
                       backend.fill_zero(stream, x.data(), x.bytes());
                     };
                   }});
  table.push_back({"fill_normal",
                   "",
                   text(e),
                   ops::fill_cost(e.n, e.master),
                   {},
                   [=](KernelInputs& in) -> KernelRun {
                     Tensor x = in.empty(Shape{e.n}, e.master);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.fill_normal(stream, x, 0, 0.02, /*seed=*/1, /*name_hash=*/2, 0);
                     };
                   }});
  const auto add_cast = [&](const char* variant, DType from, DType to) {
    table.push_back({"cast", variant, text(e), ops::cast_cost(e.n, from, to), kOptimizerBar,
                     [=](KernelInputs& in) -> KernelRun {
                       const Tensor x = in.normal(Shape{e.n}, from);
                       Tensor out = in.empty(Shape{e.n}, to);
                       return [=](Backend& backend, Stream& stream) mutable {
                         backend.cast(stream, x, out);
                       };
                     }});
  };
  const DType narrow = e.has_copy() ? e.dtype : DType::kBF16;
  add_cast("to 16 bits", e.master, narrow);
  add_cast("from 16 bits", narrow, e.master);
  table.push_back(
      {"round_stochastically", "", text(e), ops::cast_cost(e.n, DType::kF32, DType::kBF16),
       kOptimizerBar, [=](KernelInputs& in) -> KernelRun {
         const Tensor x = in.normal(Shape{e.n}, DType::kF32);
         Tensor out = in.empty(Shape{e.n}, DType::kBF16);
         const std::vector<ParameterRun> runs = {{0, e.n, /*name_hash=*/2, 0}};
         return [=](Backend& backend, Stream& stream) mutable {
           backend.round_stochastically(stream, {.x = x, .out = out, .runs = runs, .seed = 1});
         };
       }});
  table.push_back({"divide", "", text(e), ops::divide_cost(e.n, e.gradient), kOptimizerBar,
                   [=](KernelInputs& in) -> KernelRun {
                     const Tensor x = in.normal(Shape{e.n}, e.gradient);
                     return [=](Backend& backend, Stream& stream) {
                       Tensor quotient = x;
                       backend.divide(stream, quotient, 1.0001);
                     };
                   }});
}

// ---------------------------------------------------------------------------- Optimizer

// What the kernels of all optimizers read and write, and two values of an element that they keep.
struct UpdateInputs {
  UpdateInputs(const ShardExtents& e, KernelInputs& in)
      : master(in.normal(Shape{e.n}, e.master)),
        grad(in.normal(Shape{e.n}, e.gradient)),
        first(in.constant(Shape{e.n}, e.master, 1)),
        second(in.constant(Shape{e.n}, e.master, 1)),
        segments({{0, e.n, /*decay=*/true, 0}}),
        ones(in.scalar<int32_t>(1).view(Shape{1})),
        learning_rate(in.scalar<double>(1e-4)),
        gradient_scale(in.constant(Shape{}, accumulation_dtype(e.gradient), 1)),
        skip(in.scalar<int32_t>(0)) {
    if (e.has_copy()) copy = in.empty(Shape{e.n}, e.dtype);
  }
  ShardUpdate shard() {
    return {.master = master,
            .grad = grad,
            .copy = copy.defined() ? &copy : nullptr,
            .segments = segments,
            .step_counts = ones,
            .present = ones,
            .learning_rate = learning_rate,
            .gradient_scale = gradient_scale,
            .skip = skip,
            .weight_decay = 0.1};
  }

  Tensor master, grad, first, second, copy;
  std::vector<ShardSegment> segments;
  Tensor ones, learning_rate, gradient_scale, skip;
};

// A line for a kernel that keeps `states` values of an element.
template <typename Kernel>
void add_update(const ShardExtents& e, std::string name, std::string variant, int64_t states,
                Kernel kernel, std::vector<KernelCase>& table) {
  if (e.has_copy()) variant += variant.empty() ? "with copy" : ", with copy";
  table.push_back({std::move(name), std::move(variant), text(e),
                   ops::shard_update_cost(e.n, states, e.dtype, e.gradient, e.has_copy()),
                   kOptimizerBar, [=](KernelInputs& in) -> KernelRun {
                     const auto inputs = std::make_shared<UpdateInputs>(e, in);
                     return [=](Backend& backend, Stream& stream) {
                       kernel(backend, stream, *inputs);
                     };
                   }});
}

void add_optimizer(const ShardExtents& e, std::vector<KernelCase>& table) {
  for (const bool decoupled : {true, false}) {
    add_update(
        e, "adam", decoupled ? "decoupled" : "", 2,
        [=](Backend& backend, Stream& stream, UpdateInputs& in) {
          backend.adam(stream, {.shard = in.shard(),
                                .exp_avg = in.first,
                                .exp_avg_sq = in.second,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-8,
                                .decoupled = decoupled});
        },
        table);
  }
  add_update(
      e, "adamax", "", 2,
      [](Backend& backend, Stream& stream, UpdateInputs& in) {
        backend.adamax(stream, {.shard = in.shard(),
                                .exp_avg = in.first,
                                .exp_inf = in.second,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .epsilon = 1e-8});
      },
      table);
  add_update(
      e, "adadelta", "", 2,
      [](Backend& backend, Stream& stream, UpdateInputs& in) {
        backend.adadelta(stream, {.shard = in.shard(),
                                  .square_avg = in.second,
                                  .acc_delta = in.first,
                                  .rho = 0.9,
                                  .epsilon = 1e-6});
      },
      table);
  for (const bool momentum : {false, true}) {
    add_update(
        e, "sgd", momentum ? "momentum" : "", momentum,
        [=](Backend& backend, Stream& stream, UpdateInputs& in) {
          backend.sgd(stream, {.shard = in.shard(),
                               .momentum_buffer = momentum ? &in.first : nullptr,
                               .momentum = 0.9});
        },
        table);
  }
}

void add_tests_of_gradients(const ShardExtents& e, std::vector<KernelCase>& table) {
  table.push_back({"power_sum", "", text(e), ops::power_sum_cost(e.n, e.gradient), kOptimizerBar,
                   [=](KernelInputs& in) -> KernelRun {
                     const Tensor x = in.normal(Shape{e.n}, e.gradient);
                     Tensor out = in.scalar<double>(0);
                     const std::vector<std::pair<int64_t, int64_t>> spans = {{0, e.n}};
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.power_sum(stream, {.x = x, .spans = spans, .power = 2, .out = out});
                     };
                   }});
  table.push_back({"find_overflow", "", text(e), ops::find_overflow_cost(e.n, e.gradient),
                   kOptimizerBar, [=](KernelInputs& in) -> KernelRun {
                     const Tensor x = in.normal(Shape{e.n}, e.gradient);
                     Tensor flag = in.scalar<int32_t>(0);
                     return [=](Backend& backend, Stream& stream) mutable {
                       const double limit = largest_finite(e.dtype);
                       backend.find_overflow(stream, {.x = x, .limit = limit, .flag = flag});
                     };
                   }});
}

// ---------------------------------------------------------------------------- A few scalars

void add_scalars(const ShardExtents& e, std::vector<KernelCase>& table) {
  constexpr int64_t kParameters = 16;  // of a block
  table.push_back({"advance_steps",
                   "",
                   fmt::format("{}", kParameters),
                   {},
                   {},
                   [](KernelInputs& in) -> KernelRun {
                     Tensor counts = in.indices(Shape{kParameters}, 2);
                     const Tensor present = in.indices(Shape{kParameters}, 2);
                     const Tensor skip = in.scalar<int32_t>(0);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.advance_steps(stream, counts, present, skip);
                     };
                   }});
  table.push_back({"clip_coefficient", "", "1", {}, {}, [=](KernelInputs& in) -> KernelRun {
                     const Tensor sum = in.scalar<double>(4);
                     Tensor norm = in.scalar<double>(0), skip = in.scalar<int32_t>(0);
                     Tensor coefficient = in.constant(Shape{}, accumulation_dtype(e.gradient), 1);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.clip_coefficient(stream, {.power_sum = sum,
                                                         .power = 2,
                                                         .max_norm = 1,
                                                         .norm = norm,
                                                         .coefficient = coefficient,
                                                         .skip = skip});
                     };
                   }});
  table.push_back({"update_loss_scale", "", "1", {}, {}, [](KernelInputs& in) -> KernelRun {
                     const Tensor overflow = in.scalar<int32_t>(0);
                     Tensor scale = in.scalar<float>(1024), aborted = in.scalar<int32_t>(0);
                     Tensor counters = in.indices(Shape{3}, 1);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.update_loss_scale(stream, {.rule = {},
                                                          .overflow = overflow,
                                                          .scale = scale,
                                                          .counters = counters,
                                                          .aborted = aborted});
                     };
                   }});
}

}  // namespace

KernelCase copy_line(int64_t elements, DType dtype) {
  const auto prepare = [=](KernelInputs& in) -> KernelRun {
    const Tensor from = in.normal(Shape{elements}, dtype), to = in.empty(Shape{elements}, dtype);
    return [=](Backend& backend, Stream& stream) {
      backend.copy(stream, to.data(), from.data(), to.bytes());
    };
  };
  return {"copy", "", fmt::format("{}", elements), ops::copy_cost(elements, dtype), {}, prepare};
}

void add_shard_kernels(const KernelExtents& extents, std::vector<KernelCase>& table) {
  const ShardExtents e(extents);
  add_memory(e, table);
  add_optimizer(e, table);
  add_tests_of_gradients(e, table);
  add_scalars(e, table);
}

}  // namespace fsdp::tools
