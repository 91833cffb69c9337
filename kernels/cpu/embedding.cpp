// Table lookup and its gradient. The gradient sorts the tokens, so that each row of the table is
// summed in the order of (b, t) whatever the number of threads; threads divide the columns, since
// tokens crowd on few rows.
#include "core/layer_args.h"
#include "kernels/cpu/cpu_backend.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kRowGrain = 16;
constexpr int64_t kColumnGrain = 64;  // whole cache lines in every dtype

void check_tokens(const int32_t* tokens, int64_t n, int64_t vocabulary, std::string_view op) {
  for (int64_t i = 0; i < n; ++i) {
    FSDP_CHECK(tokens[i] >= 0 && tokens[i] < vocabulary, "[{}] token: expected in [0, {}), got {}",
               op, vocabulary, tokens[i]);
  }
}

template <typename T>
void lookup_row(const T* row, const T* position, T* y, int64_t n) {
  using A = Accumulate<T>;
  if (!position) {
    std::copy_n(row, n, y);
    return;
  }
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) y[c] = T(A(row[c]) + A(position[c]));
}

// (token, index into the batch), sorted: a run of equal tokens is one row's sum, in order.
std::vector<std::pair<int32_t, int32_t>> sorted_tokens(const int32_t* tokens, int64_t n) {
  std::vector<std::pair<int32_t, int32_t>> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    order[static_cast<size_t>(i)] = {tokens[i], static_cast<int32_t>(i)};
  }
  std::sort(order.begin(), order.end());
  return order;
}

template <typename A, typename T>
void add_run(const T* x, A* sum, int64_t n) {
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) sum[c] += A(x[c]);
}

template <typename A, typename Out>
void begin_sum(const Out* out, bool accumulate, A* sum, int64_t n) {
  for (int64_t c = 0; c < n; ++c) sum[c] = accumulate ? A(out[c]) : A(0);
}

template <typename A, typename Out>
void store_sum(const A* sum, Out* out, int64_t n) {
  for (int64_t c = 0; c < n; ++c) out[c] = Out(sum[c]);
}

// f(TypeTag of the incoming gradient, TypeTag of the parameter's gradient, TypeTag of the sums).
template <typename F>
void dispatch_gradient(const Tensor& dy, const Tensor& out, std::string_view op, F&& f) {
  dispatch_floating(dy.dtype(), op, [&]<typename T>(TypeTag<T> from) {
    dispatch_floating(out.dtype(), op, [&]<typename Out>(TypeTag<Out> to) {
      f(from, to, TypeTag<decltype(Accumulate<T>() + Accumulate<Out>())>{});
    });
  });
}

template <typename A, typename T, typename Out>
struct ScatterRows {
  const int32_t* tokens;  // (n)
  const T* dy;            // (n, columns)
  Out* dtable;            // (vocabulary, columns)
  int64_t n, vocabulary, columns;
  bool accumulate;

  void zero_untouched(const std::vector<std::pair<int32_t, int32_t>>& order,
                      ThreadTeam& team) const {
    team.parallel_for(vocabulary, kRowGrain, [&](int64_t begin, int64_t end) {
      auto next = std::lower_bound(order.begin(), order.end(),
                                   std::pair{static_cast<int32_t>(begin), int32_t{0}});
      for (int64_t row = begin; row < end; ++row) {
        while (next != order.end() && next->first < row) ++next;
        if (next != order.end() && next->first == row) continue;
        std::fill_n(dtable + row * columns, columns, Out{});
      }
    });
  }

  void sum_columns(const std::vector<std::pair<int32_t, int32_t>>& order, int64_t begin,
                   int64_t end) const {
    A sum[kColumnGrain];
    const int64_t width = end - begin;
    for (auto token = order.begin(); token != order.end();) {
      const int32_t row = token->first;
      Out* out = dtable + row * columns + begin;
      begin_sum(out, accumulate, sum, width);
      for (; token != order.end() && token->first == row; ++token) {
        add_run(dy + token->second * columns + begin, sum, width);
      }
      store_sum(sum, out, width);
    }
  }

  void operator()(Worker& worker) const {
    check_tokens(tokens, n, vocabulary, "embedding_backward");
    const auto order = sorted_tokens(tokens, n);
    if (!accumulate) zero_untouched(order, worker.team);
    worker.team.parallel_for(columns, kColumnGrain,
                             [&](int64_t begin, int64_t end) { sum_columns(order, begin, end); });
  }
};

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const EmbeddingForwardArgs& args) {
  const Tensor &tokens = args.tokens, &table = args.table;
  const int64_t rows = tokens.numel(), length = tokens.shape().last();
  const int64_t vocabulary = table.shape()[0], columns = table.shape()[1];
  dispatch_floating(table.dtype(), "embedding_forward", [&]<typename T>(TypeTag<T>) {
    const T* first =
        args.positions ? args.positions->data_as<T>() + args.first_position * columns : nullptr;
    enqueue(stream, "embedding_forward", 0,
            [=, tokens = tokens.data_as<int32_t>(), table = table.data_as<T>(),
             y = args.y.data_as<T>()](Worker& worker) {
              check_tokens(tokens, rows, vocabulary, "embedding");
              worker.team.parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  const T* position = first ? first + row % length * columns : nullptr;
                  lookup_row(table + tokens[row] * columns, position, y + row * columns, columns);
                }
              });
            });
  });
}

template <>
void CpuBackend::compute(Stream& stream, const EmbeddingBackwardArgs& args) {
  dispatch_gradient(
      args.dy, args.dtable, "embedding_backward",
      [&]<typename T, typename Out, typename A>(TypeTag<T>, TypeTag<Out>, TypeTag<A>) {
        const ScatterRows<A, T, Out> scatter = {.tokens = args.tokens.data_as<int32_t>(),
                                                .dy = args.dy.data_as<T>(),
                                                .dtable = args.dtable.data_as<Out>(),
                                                .n = args.tokens.numel(),
                                                .vocabulary = args.vocabulary(),
                                                .columns = args.dtable.shape()[1],
                                                .accumulate = args.accumulate};
        enqueue(stream, "embedding_backward", 0, scatter);
      });
}

template <>
void CpuBackend::compute(Stream& stream, const PositionBackwardArgs& args) {
  const Tensor &dy = args.dy, &dpositions = args.dpositions;
  const int64_t batch = dy.shape()[0], length = dy.shape()[1], columns = dy.shape()[2];
  const int64_t rows = dpositions.shape()[0];
  dispatch_gradient(
      dy, dpositions, "position_backward",
      [&]<typename T, typename Out, typename A>(TypeTag<T>, TypeTag<Out>, TypeTag<A>) {
        enqueue(stream, "position_backward", 0,
                [=, accumulate = args.accumulate, dy = dy.data_as<T>(),
                 out = dpositions.data_as<Out>()](Worker& worker) {
                  worker.team.run(rows, [&](int64_t t, int) {
                    A sum[kColumnGrain];
                    for (int64_t c = 0; c < columns; c += kColumnGrain) {
                      const int64_t width = std::min(kColumnGrain, columns - c);
                      Out* to = out + t * columns + c;
                      begin_sum(to, accumulate, sum, width);
                      for (int64_t b = 0; b < batch && t < length; ++b) {
                        add_run(dy + (b * length + t) * columns + c, sum, width);
                      }
                      store_sum(sum, to, width);
                    }
                  });
                });
      });
}

}  // namespace fsdp::cpu
