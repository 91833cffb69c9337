// GELU (tanh and erf form) and SwiGLU, forward and backward, element by element.
// Bound by memory in f32 where vectors are wide; results may overwrite operands.
#include <numbers>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 14;  // elements that one thread takes at a time

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2u).
struct GeluTanh {
  template <typename A>
  static A two_u(A x) {
    constexpr A kTwice = A(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    return kTwice * (x + A(0.044715) * (x * x * x));
  }
  template <typename A>
  static A value(A x) {
    return x * simd_sigmoid(two_u(x));
  }
  template <typename A>
  static A derivative(A x) {
    constexpr A kTwice = A(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    const A s = simd_sigmoid(two_u(x));
    return s + x * s * (A(1) - s) * (kTwice * (A(1) + A(3 * 0.044715) * (x * x)));
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

template <typename F, typename T>
void apply_run(const T* x, T* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = T(F::value(Accumulate<T>(x[i])));
}

template <typename F, typename T>
void derive_run(const T* x, const T* dy, T* dx, int64_t n) {
  using A = Accumulate<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = T(A(dy[i]) * F::derivative(A(x[i])));
}

template <typename T>
void swiglu_run(const T* gate, const T* up, T* y, int64_t n) {
  using A = Accumulate<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const A g = A(gate[i]);
    y[i] = T(g * simd_sigmoid(g) * A(up[i]));
  }
}

template <typename T>
void swiglu_derive_run(const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n) {
  using A = Accumulate<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const A g = A(gate[i]), u = A(up[i]), d = A(dy[i]);
    const A s = simd_sigmoid(g);
    dgate[i] = T(d * u * s * (A(1) + g * (A(1) - s)));
    dup[i] = T(d * g * s);
  }
}

// f(GeluTanh) or f(GeluErf).
template <typename F>
auto dispatch_activation(Activation kind, std::string_view op, F&& f) {
  switch (kind) {
    case Activation::kGeluTanh: return f(GeluTanh{});
    case Activation::kGeluErf: return f(GeluErf{});
    default: fail("[{}] kind: expected an activation, got {}", op, static_cast<int>(kind));
  }
}

template <typename Body>  // (begin, end)
std::function<void(Worker&)> elementwise_task(int64_t n, Body body) {
  return [n, body](Worker& worker) {
    worker.team.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      wide_loop([&](auto) { body(begin, end); });
    });
  };
}

}  // namespace

void CpuBackend::activation_forward(Stream& stream, Activation kind, const Tensor& x, Tensor& y) {
  constexpr std::string_view kName = "activation_forward";
  dispatch_floating(x.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    dispatch_activation(kind, kName, [&]<typename F>(F) {
      const auto body = [x = x.data_as<T>(), y = y.data_as<T>()](int64_t begin, int64_t end) {
        apply_run<F>(x + begin, y + begin, end - begin);
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
                            int64_t begin, int64_t end) {
        derive_run<F>(x + begin, dy + begin, dx + begin, end - begin);
      };
      enqueue(stream, kName, 0, elementwise_task(x.numel(), body));
    });
  });
}

void CpuBackend::swiglu_forward(Stream& stream, const Tensor& gate, const Tensor& up, Tensor& y) {
  constexpr std::string_view kName = "swiglu_forward";
  dispatch_floating(gate.dtype(), kName, [&]<typename T>(TypeTag<T>) {
    const auto body = [gate = gate.data_as<T>(), up = up.data_as<T>(), y = y.data_as<T>()](
                          int64_t begin, int64_t end) {
      swiglu_run(gate + begin, up + begin, y + begin, end - begin);
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
                       dup = dup.data_as<T>()](int64_t begin, int64_t end) {
      swiglu_derive_run(gate + begin, up + begin, dy + begin, dgate + begin, dup + begin,
                        end - begin);
    };
    enqueue(stream, kName, 0, elementwise_task(gate.numel(), body));
  });
}

}  // namespace fsdp::cpu
