// GELU (tanh and erf form) and SwiGLU, forward and backward, element by element.
// Bound by memory in f32 where vectors are wide; results may overwrite operands.
#include <numbers>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 14;  // elements that one thread takes at a time
constexpr int64_t kRun = 512;                 // elements of a conversion buffer

struct ExactConstants {
  static constexpr double kRoot = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  static constexpr double kSlope = 3 * 0.044715 * kRoot;
};
struct BloomConstants {  // transformers, modeling_bloom.py: bloom_gelu_forward, bloom_gelu_back
  static constexpr double kRoot = 0.79788456;
  static constexpr double kSlope = 0.1070322243;
};

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2u).
template <typename Constants>
struct GeluTanh {
  template <typename A>
  static A two_u(A x) {
    constexpr A kTwice = A(2 * Constants::kRoot);
    return kTwice * (x + A(0.044715) * (x * x * x));
  }
  template <typename A>
  static A value(A x) {
    return x * simd_sigmoid(two_u(x));
  }
  template <typename A>
  static A derivative(A x) {
    constexpr A kTwiceRoot = A(2 * Constants::kRoot), kTwiceSlope = A(2 * Constants::kSlope);
    const A s = simd_sigmoid(two_u(x));
    return s + x * s * (A(1) - s) * (kTwiceRoot + kTwiceSlope * (x * x));
  }
};

// x Phi(x), Phi the distribution function of the standard normal.
struct GeluErf {
  template <typename A>
  static A phi(A x) {
    return A(0.5) * (A(1) + simd_erf(x * A(1 / std::numbers::sqrt2)));
  }
  template <typename A>
  static A value(A x) {
    return x * phi(x);
  }
  template <typename A>
  static A derivative(A x) {
    constexpr A kDensity = A(0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    return phi(x) + x * kDensity * simd_exp(A(-0.5) * (x * x));
  }
};

struct Relu {  // of NaN: NaN
  template <typename A>
  static A value(A x) {
    return x < A(0) ? A(0) : x;
  }
  template <typename A>
  static A derivative(A x) {
    return x <= A(0) ? A(0) : A(1);
  }
};

// ---- runs of up to kRun elements, in f32 or f64 ----

template <typename F, typename A>
void apply_run(const A* x, A* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = F::value(x[i]);
}

template <typename F, typename A>
void derive_run(const A* x, const A* dy, A* dx, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * F::derivative(x[i]);
}

template <typename A>
void swiglu_run(const A* gate, const A* up, A* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] * simd_sigmoid(gate[i]) * up[i];
}

template <typename A>
void swiglu_derive_run(const A* gate, const A* up, const A* dy, A* dgate, A* dup, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const A g = gate[i], u = up[i], d = dy[i];
    const A s = simd_sigmoid(g);
    dgate[i] = d * u * s * (A(1) + g * (A(1) - s));
    dup[i] = d * g * s;
  }
}

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
    if constexpr (kCopied) return copy_;
    else return data_;
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

// f(the struct of that activation).
template <typename F>
auto dispatch_activation(Activation kind, std::string_view op, F&& f) {
  switch (kind) {
    case Activation::kGeluTanh: return f(GeluTanh<ExactConstants>{});
    case Activation::kGeluBloom: return f(GeluTanh<BloomConstants>{});
    case Activation::kGeluErf: return f(GeluErf{});
    case Activation::kRelu:
      return f(Relu{});
    default: fail("[{}] kind: expected an activation, got {}", op, static_cast<int>(kind));
  }
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

}  // namespace

void CpuBackend::activation_forward(Stream& stream, Activation kind, const Tensor& x, Tensor& y) {
  constexpr std::string_view kName = "activation_forward";
  dispatch_floating(x.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    dispatch_activation(kind, kName, [&]<typename F>(F) {
      const auto body = [x = x.data_as<T>(), y = y.data_as<T>()](int64_t i, int64_t n) {
        Run<T> x_run(x + i, n), y_run(y + i, n);
        apply_run<F>(x_run.read(), y_run.values(), n);
        y_run.store();
      };
      enqueue(stream, kName, 0, elementwise_task(x.numel(), body));
    });
  });
}

void CpuBackend::activation_backward(Stream& stream, Activation kind, const Tensor& x,
                                     const Tensor& dy, Tensor& dx) {
  constexpr std::string_view kName = "activation_backward";
  dispatch_floating(x.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    dispatch_activation(kind, kName, [&]<typename F>(F) {
      const auto body = [x = x.data_as<T>(), dy = dy.data_as<T>(), dx = dx.data_as<T>()](
                            int64_t i, int64_t n) {
        Run<T> x_run(x + i, n), dy_run(dy + i, n), dx_run(dx + i, n);
        derive_run<F>(x_run.read(), dy_run.read(), dx_run.values(), n);
        dx_run.store();
      };
      enqueue(stream, kName, 0, elementwise_task(x.numel(), body));
    });
  });
}

void CpuBackend::swiglu_forward(Stream& stream, const Tensor& gate, const Tensor& up, Tensor& y) {
  constexpr std::string_view kName = "swiglu_forward";
  dispatch_floating(gate.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    const auto body = [gate = gate.data_as<T>(), up = up.data_as<T>(), y = y.data_as<T>()](
                          int64_t i, int64_t n) {
      Run<T> gate_run(gate + i, n), up_run(up + i, n), y_run(y + i, n);
      swiglu_run(gate_run.read(), up_run.read(), y_run.values(), n);
      y_run.store();
    };
    enqueue(stream, kName, 0, elementwise_task(gate.numel(), body));
  });
}

void CpuBackend::swiglu_backward(Stream& stream, const Tensor& gate, const Tensor& up,
                                 const Tensor& dy, Tensor& dgate, Tensor& dup) {
  constexpr std::string_view kName = "swiglu_backward";
  dispatch_floating(gate.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    const auto body = [gate = gate.data_as<T>(), up = up.data_as<T>(), dy = dy.data_as<T>(),
                       dgate = dgate.data_as<T>(),
                       dup = dup.data_as<T>()](int64_t i, int64_t n) {
      Run<T> gate_run(gate + i, n), up_run(up + i, n), dy_run(dy + i, n);
      Run<T> dgate_run(dgate + i, n), dup_run(dup + i, n);
      swiglu_derive_run(gate_run.read(), up_run.read(), dy_run.read(), dgate_run.values(),
                        dup_run.values(), n);
      dgate_run.store();
      dup_run.store();
    };
    enqueue(stream, kName, 0, elementwise_task(gate.numel(), body));
  });
}

}  // namespace fsdp::cpu
