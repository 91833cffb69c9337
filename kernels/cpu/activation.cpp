// Activations and gated linear units, forward and backward, element by element; the functions
// themselves: activation_functions.h. Bound by memory in f32 where vectors are wide; results may
// overwrite operands.
#include "core/layer_args.h"
#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 14;  // elements that one thread takes at a time
constexpr int64_t kRun = 512;                 // elements of a conversion buffer

// ---- loops over up to kRun elements, in f32 or f64 ----

struct ApplyLoop {
  template <typename F, typename A>
  static void run(const A* x, A* y, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = F::value(x[i]);
  }
};

struct DeriveLoop {
  template <typename F, typename A>
  static void run(const A* x, const A* dy, A* dx, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * F::derivative(x[i]);
  }
};

struct GateLoop {
  template <typename F, typename A>
  static void run(const A* gate, const A* up, A* y, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = F::value(gate[i]) * up[i];
  }
};

struct GateDeriveLoop {
  template <typename F, typename A>
  static void run(const A* gate, const A* up, const A* dy, A* dgate, A* dup, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const A g = gate[i], u = up[i], d = dy[i];
      dgate[i] = d * u * F::derivative(g);
      dup[i] = d * F::value(g);
    }
  }
};

// Activations of well-known models: a loop of its own in every kernel.
template <typename F>
struct Inlined {
  template <typename Loop, typename... Args>
  void operator()(Loop, Args... args) const {
    Loop::template run<F>(args...);
  }
};

// All others: chosen run by run, and compiled once, for the build's vectors.
class Chosen {
 public:
  explicit Chosen(Activation kind) : kind_(kind) {}

  template <typename Loop, typename... Args>
  __attribute__((noinline)) void operator()(Loop, Args... args) const {
    choose([&]<typename F>(F) { Loop::template run<F>(args...); });
  }

 private:
  template <typename Body>
  void choose(Body body) const {
    switch (kind_) {
      case Activation::kGeluTanh:
        return body(GeluTanh<ExactConstants>{});
      case Activation::kGeluErf:
        return body(GeluErf{});
      case Activation::kGeluBloom:
        return body(GeluTanh<BloomConstants>{});
      case Activation::kGeluFast:
        return body(GeluTanh<TenDigits>{});
      case Activation::kGeluClipped:
        return body(GeluClipped{});
      case Activation::kQuickGelu:
        return body(QuickGelu{});
      case Activation::kSilu:
        return body(Silu{});
      case Activation::kRelu:
        return body(Relu{});
      case Activation::kReluSquared:
        return body(ReluSquared{});
      case Activation::kRelu6:
        return body(Relu6{});
      case Activation::kLeakyRelu:
        return body(LeakyRelu{});
      case Activation::kTanh:
        return body(Tanh{});
      case Activation::kSigmoid:
        return body(Sigmoid{});
      case Activation::kMish:
        return body(Mish{});
      case Activation::kLaplace:
        return body(Laplace{});
      case Activation::kNone:
        return body(Identity{});
    }
  }

  Activation kind_;
};

// A run of a tensor as f32 or f64: the memory itself, or for 16-bit types a copy in the nearest
// cache, since loops that mix widths take half as long again.
template <typename T>
class Run {
  using A = Accumulate<T>;

 public:
  Run(T* data, int64_t n) : data_(data), n_(n) {}

  const A* read() {
    if constexpr (kCopied) convert(data_, copy_, n_);
    return values();
  }
  A* values() {  // to write to; then store()
    if constexpr (kCopied)
      return copy_;
    else
      return data_;
  }
  void store() {
    if constexpr (kCopied) convert(copy_, data_, n_);
  }

 private:
  static constexpr bool kCopied = !std::is_same_v<T, A>;
  T* data_;
  int64_t n_;
  A copy_[kCopied ? kRun : 1];
};

template <typename F>
auto dispatch_activation(Activation kind, std::string_view op, F&& f) {
  switch (kind) {
    case Activation::kGeluTanh:
      return f(Inlined<GeluTanh<ExactConstants>>{});
    case Activation::kGeluBloom:
      return f(Inlined<GeluTanh<BloomConstants>>{});
    case Activation::kGeluErf:
      return f(Inlined<GeluErf>{});
    case Activation::kRelu:
      return f(Inlined<Relu>{});
    case Activation::kNone:
      fail("[{}] kind: expected an activation, got none", op);
    default:
      return f(Chosen(kind));
  }
}

template <typename F>
auto dispatch_gate(Activation kind, F&& f) {
  return kind == Activation::kSilu ? f(Inlined<Silu>{}) : f(Chosen(kind));
}

template <typename Body>  // (first element, elements) of a run
std::function<void(Worker&)> elementwise_task(int64_t n, Body body) {
  return [n, body](Worker& worker) {
    worker.team.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      wide_loop([&](auto) {
        for (int64_t i = begin; i < end; i += kRun) body(i, std::min(kRun, end - i));
      });
    });
  };
}

// The same where gate and up may be halves of rows, of `width` elements each: no run lies in two
// rows. Element i of y has its gate at i + i / width * width.
template <typename Body>  // (first element, its place in the rows of gate, elements) of a run
std::function<void(Worker&)> gated_task(int64_t n, int64_t width, Body body) {
  return [n, width, body](Worker& worker) {
    worker.team.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      wide_loop([&](auto) {
        for (int64_t i = begin; i < end;) {
          const int64_t row = i / width * width;
          const int64_t count = std::min({kRun, end - i, row + width - i});
          body(i, i + row, count);
          i += count;
        }
      });
    });
  };
}

// As elementwise_task, with the sums over rows of dx while four rows of a run are in a near cache.
template <typename T, typename Body>
std::function<void(Worker&)> summed_task(const ActivationBackwardArgs& args, Body body) {
  using A = Accumulate<T>;
  return [body, dx = args.dx.data_as<T>(), dbias = ColumnTarget(args.dbias, args.accumulate_bias),
          rows = args.x.shape().rows(), columns = args.x.shape().last()](Worker& worker) {
    const RowBlocks cut(rows, kLeastSummedRows);
    const auto sums = static_cast<size_t>(std::max<int64_t>(1, cut.count * columns));
    A* partials = static_cast<A*>(worker.team.scratch(0, sums * sizeof(A)));
    worker.team.run(cut.count, [&](int64_t block, int) {
      A* partial = partials + block * columns;
      std::fill_n(partial, columns, A(0));
      const int64_t end = std::min(rows, (block + 1) * cut.rows_each);
      wide_loop([&](auto) {
        for (int64_t row = block * cut.rows_each; row < end; row += 4) {
          const int64_t few = std::min<int64_t>(4, end - row);
          for (int64_t c = 0; c < columns; c += kRun) {
            const int64_t at = row * columns + c, n = std::min(kRun, columns - c);
            for (int64_t i = 0; i < few; ++i) body(at + i * columns, n);
            add_rows(dx + at, few, n, columns, partial + c);
          }
        }
      });
    });
    dbias.add_blocks(partials, cut.count, columns, columns, worker.team);
  };
}

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const ActivationForwardArgs& args) {
  constexpr std::string_view kName = ActivationForwardArgs::name();
  dispatch_floating(args.x.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    dispatch_activation(args.kind, kName, [&](auto f) {
      const auto body = [f, x = args.x.data_as<T>(), y = args.y.data_as<T>()](int64_t i,
                                                                              int64_t n) {
        Run<T> x_run(x + i, n), y_run(y + i, n);
        f(ApplyLoop{}, x_run.read(), y_run.values(), n);
        y_run.store();
      };
      enqueue(stream, kName, 0, elementwise_task(args.x.numel(), body));
    });
  });
}

template <>
void CpuBackend::compute(Stream& stream, const ActivationBackwardArgs& args) {
  constexpr std::string_view kName = ActivationBackwardArgs::name();
  plan_scratch(stream, scratch_of(args));
  dispatch_floating(args.x.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    dispatch_activation(args.kind, kName, [&](auto f) {
      const auto body = [f, x = args.x.data_as<T>(), dy = args.dy.data_as<T>(),
                         dx = args.dx.data_as<T>()](int64_t i, int64_t n) {
        Run<T> x_run(x + i, n), dy_run(dy + i, n), dx_run(dx + i, n);
        f(DeriveLoop{}, x_run.read(), dy_run.read(), dx_run.values(), n);
        dx_run.store();
      };
      enqueue(stream, kName, 0,
              args.dbias ? summed_task<T>(args, body) : elementwise_task(args.x.numel(), body));
    });
  });
}

template <>
void CpuBackend::compute(Stream& stream, const GluForwardArgs& args) {
  constexpr std::string_view kName = GluForwardArgs::name();
  dispatch_floating(args.gate.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    dispatch_gate(args.kind, [&](auto f) {
      const int64_t width = args.up ? args.y.numel() : args.y.shape().last();
      T* const gate = args.gate.data_as<T>();
      const auto body = [f, gate, up = args.up ? args.up->data_as<T>() : gate + width,
                         y = args.y.data_as<T>()](int64_t i, int64_t at, int64_t n) {
        Run<T> gate_run(gate + at, n), up_run(up + at, n), y_run(y + i, n);
        f(GateLoop{}, gate_run.read(), up_run.read(), y_run.values(), n);
        y_run.store();
      };
      enqueue(stream, kName, 0, gated_task(args.y.numel(), width, body));
    });
  });
}

template <>
void CpuBackend::compute(Stream& stream, const GluBackwardArgs& args) {
  constexpr std::string_view kName = GluBackwardArgs::name();
  dispatch_floating(args.gate.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    dispatch_gate(args.kind, [&](auto f) {
      const int64_t width = args.up ? args.dy.numel() : args.dy.shape().last();
      T *const gate = args.gate.data_as<T>(), *const dgate = args.dgate.data_as<T>();
      const auto body = [f, gate, up = args.up ? args.up->data_as<T>() : gate + width,
                         dy = args.dy.data_as<T>(), dgate,
                         dup = args.dup ? args.dup->data_as<T>() : dgate + width](
                            int64_t i, int64_t at, int64_t n) {
        Run<T> gate_run(gate + at, n), up_run(up + at, n), dy_run(dy + i, n);
        Run<T> dgate_run(dgate + at, n), dup_run(dup + at, n);
        f(GateDeriveLoop{}, gate_run.read(), up_run.read(), dy_run.read(), dgate_run.values(),
          dup_run.values(), n);
        dgate_run.store();
        dup_run.store();
      };
      enqueue(stream, kName, 0, gated_task(args.dy.numel(), width, body));
    });
  });
}

}  // namespace fsdp::cpu
