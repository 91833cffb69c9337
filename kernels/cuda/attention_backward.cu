// Attention backward: weights are computed again from log_sum_exp (Dao et al. 2022, algorithm 4),
// once with the queries at rest (dQ) and once with the keys (dK, dV): seven products in place of
// five, but every sum has one owner and one order, so the result is the same every time and nothing
// is of size Tq x Tk. With P the weights, keep the dropout mask and scale:
//   delta = sum over d of dout * out        dP = dout V^T        dS = P * (dP * keep - delta)
//   dV = (P * keep)^T dout                  dQ = scale dS K      dK = scale dS^T Q
#include "kernels/cuda/attention_problem.h"
#include "kernels/cuda/cudnn_attention.h"

namespace fsdp::cuda {
namespace {

template <typename T>
struct BackwardProblem {
  AttentionShape shape;
  HeadRows<T> q, k, v, out, dout, dq, dk, dv;
  const float* log_sum_exp;  // (B, heads, Tq)
  float* delta;              // (B, heads, Tq)
};

// ---- delta ----

constexpr int kDeltaLanes = 8;  // of a row

// mapping: eight lanes a row of a head
// bytes:   dout and out once, 4 a row
// in f32:  products and sum
// source:  FlashAttention-2, algorithm 2, line 4
template <typename T>
__global__ void __launch_bounds__(kAttentionThreads)
    row_products(const BackwardProblem<T> p, int64_t rows) {
  constexpr int kRun = 16 / sizeof(T);
  const AttentionShape& s = p.shape;
  const int64_t index =
      (static_cast<int64_t>(blockIdx.x) * kAttentionThreads + threadIdx.x) / kDeltaLanes;
  const int64_t row = index < rows ? index : rows - 1;  // all lanes take part in the sum
  const int lane = static_cast<int>(threadIdx.x) % kDeltaLanes;
  const T *out = p.out.data + row * s.head_dim, *dout = p.dout.data + row * s.head_dim;
  float total = 0;
  if (p.out.aligned && p.dout.aligned) {
    for (int i = lane * kRun; i < s.head_dim; i += kDeltaLanes * kRun) {
      float x[kRun], y[kRun];
      load_widened<kRun>(out + i, x);
      load_widened<kRun>(dout + i, y);
#pragma unroll
      for (int e = 0; e < kRun; ++e) total = fmaf(x[e], y[e], total);
    }
  } else {
    for (int i = lane; i < s.head_dim; i += kDeltaLanes) {
      total = fmaf(widened<float>(out[i]), widened<float>(dout[i]), total);
    }
  }
#pragma unroll
  for (int bits = kDeltaLanes / 2; bits > 0; bits /= 2) {
    total += __shfl_xor_sync(kAllLanes, total, bits);
  }
  if (index >= rows || lane != 0) return;
  const int64_t h = row % s.heads, token = row / s.heads;  // (b, t, h) in memory
  p.delta[(token / s.queries * s.heads + h) * s.queries + token % s.queries] = total;
}

// ---- what both passes do to a tile ----

// lse in powers of two: -infinity for a query that sees nothing, +infinity for one that does not
// exist.
__device__ __forceinline__ float weight_of(const AttentionShape& s, float score, float bias,
                                           float lse, int query, int key, int begin, bool masked) {
  const bool blind = lse == -kInfinity;
  if (masked && (blind ? key >= s.keys : s.hides(query, key, begin))) return 0.0f;
  return blind ? s.uniform : exp2f(fmaf(score, s.scale * kLog2E, bias - lse));
}

__device__ __forceinline__ float load_lse(const float* row, int query, int queries) {
  return query < queries ? row[query] * kLog2E : kInfinity;
}

// ---- dQ ----

// mapping: a block takes 64 queries of a head, the latest first; keys and values stream past
// bytes:   q, dout, dq once; k and v once for every 64 queries (from L2)
// in f32:  scores, weights and sums; dS is rounded to T before it meets the keys
// source:  FlashAttention-2, algorithm 2, with the loops exchanged
template <typename Multiply>
__global__ void __launch_bounds__(kAttentionThreads, Multiply::kBlocks)
    query_gradients(const BackwardProblem<typename Multiply::T> p) {
  constexpr int kCols = Multiply::kCols, kRows = Multiply::kRows;
  using Scores = typename Multiply::template Fragment<kCols>;
  using Out = typename Multiply::template Fragment<Multiply::kDim>;
  const AttentionShape& s = p.shape;
  const AttentionMemory<Multiply> memory{dynamic_shared<typename Multiply::T>(), 2};
  const int b = static_cast<int>(blockIdx.x) / s.heads, h = static_cast<int>(blockIdx.x) % s.heads;
  const int kv = h / (s.heads / s.kv_heads);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kOwnRows;
  const int last = min(first + kOwnRows, s.queries) - 1;
  const int64_t statistics = (static_cast<int64_t>(b) * s.heads + h) * s.queries;
  const float* bias = s.bias_row(b, h);

  memory.own(0).template load<kOwnRows>(p.q.row(b, h, first), p.q.row_width, s.queries - first,
                                        s.head_dim, p.q.aligned);
  memory.own(1).template load<kOwnRows>(p.dout.row(b, h, first), p.dout.row_width,
                                        s.queries - first, s.head_dim, p.dout.aligned);
  float lse[kRows], delta[kRows];
  bool blind = false;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int query = first + Multiply::row(i);
    lse[i] = load_lse(p.log_sum_exp + statistics, query, s.queries);
    delta[i] = query < s.queries ? p.delta[statistics + query] : 0.0f;
    blind |= lse[i] == -kInfinity;
  }
  const int last_begin = s.first_visible(b, last);
  TileRange range = visible_keys<kCols>(s, b, first, last);
  if (__syncthreads_or(blind)) range = {0, (s.keys + kCols - 1) / kCols};

  Out dq;
  const auto load = [&](int tile, int stage) {
    const int key = tile * kCols;
    memory.streamed(stage, 0).template load<kCols>(p.k.row(b, kv, key), p.k.row_width, s.keys - key,
                                                   s.head_dim, p.k.aligned);
    memory.streamed(stage, 1).template load<kCols>(p.v.row(b, kv, key), p.v.row_width, s.keys - key,
                                                   s.head_dim, p.v.aligned);
  };
  stream_tiles(range.begin, range.end, load, [&](int tile, int stage) {
    const int key = tile * kCols;
    Scores weights, dweights;
    Multiply::multiply(memory.own(0), memory.streamed(stage, 0), weights);
    Multiply::multiply(memory.own(1), memory.streamed(stage, 1), dweights);
    const bool masked = s.hides_some(first, last_begin, key, key + kCols - 1);
    int begins[kRows] = {};
    if (masked) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) begins[i] = s.first_visible(b, first + Multiply::row(i));
    }
#pragma unroll
    for (int j = 0; j < Scores::kOfThread; ++j) {
      const int column = key + Multiply::score_column(j);
      const float added = bias_at(bias, column, s.keys);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        weights.at(i, j) = weight_of(s, weights.at(i, j), added, lse[i], first + Multiply::row(i),
                                     column, begins[i], masked);
      }
    }
    if (s.samples) {
      KeepDraw keep(s, b, h);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < Scores::kOfThread; ++j) {
          dweights.at(i, j) *= keep(first + Multiply::row(i), key + Multiply::score_column(j));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Scores::kOfThread; ++j) {
        dweights.at(i, j) = weights.at(i, j) * (dweights.at(i, j) - delta[i]);
      }
    }
    Multiply::add_product(dweights, memory.streamed(stage, 0), dq, memory.scratch());
  });
  float factor[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) factor[i] = s.scale;
  store_rows<Multiply>(dq, factor, p.dq, b, h, first, s.queries, s.head_dim);
}

// ---- dK and dV ----

// mapping: a block takes 64 keys of a key-value head, the first first (causal: most see them);
//          queries of all its heads and their gradients stream past, in order
// bytes:   k, v, dk, dv once; q and dout once for every 64 keys (from L2)
// in f32:  scores, weights and sums; weights and dS are rounded to T before they are multiplied
// source:  FlashAttention-2, algorithm 2; products are transposed so that a warp has rows of keys
template <typename Multiply>
__global__ void __launch_bounds__(kAttentionThreads, Multiply::kBlocks)
    key_value_gradients(const BackwardProblem<typename Multiply::T> p) {
  constexpr int kCols = Multiply::kCols, kRows = Multiply::kRows;
  using Scores = typename Multiply::template Fragment<kCols>;
  using Out = typename Multiply::template Fragment<Multiply::kDim>;
  FSDP_SHARED(statistics, float[2][2][kCols]);  // by stage: log_sum_exp and delta of the queries
  const AttentionShape& s = p.shape;
  const AttentionMemory<Multiply> memory{dynamic_shared<typename Multiply::T>(), 2};
  const int b = static_cast<int>(blockIdx.x) / s.kv_heads;
  const int kv = static_cast<int>(blockIdx.x) % s.kv_heads, group = s.heads / s.kv_heads;
  const int first = static_cast<int>(blockIdx.y) * kOwnRows;
  const int last = min(first + kOwnRows, s.keys) - 1;

  memory.own(0).template load<kOwnRows>(p.k.row(b, kv, first), p.k.row_width, s.keys - first,
                                        s.head_dim, p.k.aligned);
  memory.own(1).template load<kOwnRows>(p.v.row(b, kv, first), p.v.row_width, s.keys - first,
                                        s.head_dim, p.v.aligned);
  Out dk, dv;
  const TileRange seeing = seeing_queries<kCols>(s, b, first, last);
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    const int64_t rows = (static_cast<int64_t>(b) * s.heads + h) * s.queries;
    const float *log_sum_exp = p.log_sum_exp + rows, *deltas = p.delta + rows;
    const float* bias = s.bias_row(b, h);
    float added[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) added[i] = bias_at(bias, first + Multiply::row(i), s.keys);

    // Queries that see nothing weigh all keys.
    bool blind = false;
    for (int i = static_cast<int>(threadIdx.x); i < s.queries; i += kAttentionThreads) {
      blind |= log_sum_exp[i] == -kInfinity;
    }
    TileRange range = seeing;
    if (__syncthreads_or(blind)) range = {0, (s.queries + kCols - 1) / kCols};

    const auto load = [&](int tile, int stage) {
      const int query = tile * kCols, lane = static_cast<int>(threadIdx.x);
      memory.streamed(stage, 0).template load<kCols>(p.q.row(b, h, query), p.q.row_width,
                                                     s.queries - query, s.head_dim, p.q.aligned);
      memory.streamed(stage, 1).template load<kCols>(p.dout.row(b, h, query), p.dout.row_width,
                                                     s.queries - query, s.head_dim, p.dout.aligned);
      if (lane < kCols) {
        statistics[stage][0][lane] = load_lse(log_sum_exp, query + lane, s.queries);
        statistics[stage][1][lane] = query + lane < s.queries ? deltas[query + lane] : 0.0f;
      }
    };
    stream_tiles(range.begin, range.end, load, [&](int tile, int stage) {
      const int query = tile * kCols;
      Scores weights, dweights;
      Multiply::multiply(memory.own(0), memory.streamed(stage, 0), weights);
      Multiply::multiply(memory.own(1), memory.streamed(stage, 1), dweights);
      const bool masked =
          s.hides_some(query, s.first_visible(b, query + kCols - 1), first, first + kOwnRows - 1);
#pragma unroll
      for (int j = 0; j < Scores::kOfThread; ++j) {
        const int column = Multiply::score_column(j);
        const float lse = statistics[stage][0][column], delta = statistics[stage][1][column];
        const int begin = masked ? s.first_visible(b, query + column) : 0;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const int key = first + Multiply::row(i);
          float &weight = weights.at(i, j), &dweight = dweights.at(i, j);
          weight = weight_of(s, weight, added[i], lse, query + column, key, begin, masked);
          float keep = 1.0f;
          if (s.samples) keep = KeepDraw(s, b, h)(query + column, key);
          dweight = weight * fmaf(dweight, keep, -delta);
          weight *= keep;
        }
      }
      Multiply::add_product(weights, memory.streamed(stage, 1), dv, memory.scratch());
      Multiply::add_product(dweights, memory.streamed(stage, 0), dk, memory.scratch());
    });
  }
  float factor[kRows], one[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    factor[i] = s.scale;
    one[i] = 1.0f;
  }
  store_rows<Multiply>(dk, factor, p.dk, b, kv, first, s.keys, s.head_dim);
  store_rows<Multiply>(dv, one, p.dv, b, kv, first, s.keys, s.head_dim);
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const AttentionBackwardArgs& args) {
  const Op op(*this, stream, args);
  if (CudnnAttention* cudnn = cudnn_attention(); cudnn && cudnn->backward(op, args)) return;
  const AttentionShape shape(args.in);
  dispatch_attention<64, 32>(
      args.dout.dtype(), shape.head_dim, op.name(), [&]<typename Multiply>(TypeTag<Multiply>) {
        using T = typename Multiply::T;
        const BackwardProblem<T> problem{shape,
                                         HeadRows<T>(args.in.q),
                                         HeadRows<T>(args.in.k),
                                         HeadRows<T>(args.in.v),
                                         HeadRows<T>(args.out, shape.head_dim),
                                         HeadRows<T>(args.dout, shape.head_dim),
                                         HeadRows<T>(args.dq),
                                         HeadRows<T>(args.dk),
                                         HeadRows<T>(args.dv),
                                         args.log_sum_exp.data_as<float>(),
                                         args.delta.data_as<float>()};
        const int64_t rows = int64_t{shape.batch} * shape.queries * shape.heads;
        const size_t bytes = AttentionMemory<Multiply>::bytes(2);
        launch(row_products<T>, Grid(blocks_for(rows * kDeltaLanes, kAttentionThreads)),
               kAttentionThreads, 0, op, problem, rows);
        launch(query_gradients<Multiply>,
               Grid(int64_t{shape.batch} * shape.heads, blocks_for(shape.queries, kOwnRows)),
               kAttentionThreads, bytes, op, problem);
        launch(key_value_gradients<Multiply>,
               Grid(int64_t{shape.batch} * shape.kv_heads, blocks_for(shape.keys, kOwnRows)),
               kAttentionThreads, bytes, op, problem);
      });
}

}  // namespace fsdp::cuda
