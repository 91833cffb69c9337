// Rotary position embedding, in place; half-split pairs (channel i with channel i + half).
#include "core/layer_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kRowGrain = 8;

template <typename T>
struct RopeRows {
  T* x;  // the first head of the first row
  const Accumulate<T>* cos;
  const Accumulate<T>* sin;
  int64_t rows, length, row_width;  // rows = B * T
  int64_t heads, head_stride, half, first_position;
  bool inverse;
};

template <typename T, typename A>
void rotate_head(T* x, const A* cos, const A* sin, A sign, int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const A low = A(x[i]), high = A(x[i + half]), s = sign * sin[i];
    x[i] = T(low * cos[i] - high * s);
    x[i + half] = T(high * cos[i] + low * s);
  }
}

template <typename T>
void rotate_rows(RopeRows<T> a, int64_t begin, int64_t end) {
  const Accumulate<T> sign = a.inverse ? -1 : 1;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t table = (row % a.length + a.first_position) * a.half;
    for (int64_t h = 0; h < a.heads; ++h) {
      rotate_head(a.x + row * a.row_width + h * a.head_stride, a.cos + table, a.sin + table, sign,
                  a.half);
    }
  }
}

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const RopeArgs& args) {
  const Shape& shape = args.x.tensor->shape();
  dispatch_floating(args.x.tensor->dtype(), "rope", [&]<typename T>(TypeTag<T>) {
    const RopeRows<T> rows = {
        .x = args.x.tensor->data_as<T>() + args.x.offset,
        .cos = args.cos.data_as<Accumulate<T>>(),
        .sin = args.sin.data_as<Accumulate<T>>(),
        .rows = shape[0] * shape[1],
        .length = shape[1],
        .row_width = shape[2],
        .heads = args.x.heads,
        .head_stride = args.x.head_stride,
        .half = args.cos.shape().last(),
        .first_position = args.first_position,
        .inverse = args.inverse,
    };
    enqueue(stream, "rope", 0, [rows](Worker& worker) {
      worker.team.parallel_for(rows.rows, kRowGrain, [&](int64_t begin, int64_t end) {
        wide_loop([&](auto) { rotate_rows(rows, begin, end); });
      });
    });
  });
}

}  // namespace fsdp::cpu
