// Attention forward, flash style (Dao 2023, "FlashAttention-2"): a block owns 64 queries of one
// head, keys and values stream past, nothing of size Tq x Tk. Read next: attention_problem.h,
// attention_tile.h, attention_backward.cu.
#include "kernels/cuda/attention_problem.h"
#include "kernels/cuda/cudnn_attention.h"

namespace fsdp::cuda {
namespace {

template <typename T>
struct ForwardProblem {
  AttentionShape shape;
  HeadRows<T> q, k, v, out;
  float* log_sum_exp;  // (B, heads, Tq)
};

// Running softmax of a thread's rows (Milakov & Gimelshein 2018). `total` is the thread's own part.
template <typename Multiply>
struct OnlineSoftmax {
  static constexpr int kRows = Multiply::kRows;
  float maximum[kRows], total[kRows];

  __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      maximum[i] = -kInfinity;
      total[i] = 0;
    }
  }
  // scores become 2^(score - maximum), and what was added to out before is scaled to match.
  template <typename Scores, typename Out>
  __device__ __forceinline__ void add(Scores& scores, Out& out) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float largest = maximum[i];
#pragma unroll
      for (int j = 0; j < Scores::kOfThread; ++j) largest = fmaxf(largest, scores.at(i, j));
      largest = reduce_row<Multiply>(largest, Maximum{});
      const float shift = largest == -kInfinity ? 0.0f : largest;
      const float factor = exp2f(maximum[i] - shift);
      maximum[i] = largest;
      total[i] *= factor;
#pragma unroll
      for (int j = 0; j < Scores::kOfThread; ++j) {
        scores.at(i, j) = exp2f(scores.at(i, j) - shift);
        total[i] += scores.at(i, j);
      }
#pragma unroll
      for (int j = 0; j < Out::kOfThread; ++j) out.at(i, j) *= factor;
    }
  }
};

// mapping: a block takes 64 queries of a head, the latest first (causal: they see most); the
//          softmax of a row stays within a warp
// bytes:   q and out once; k and v once for every 64 queries (from L2); 4 a row for log_sum_exp
// in f32:  scores, softmax and sums; weights are rounded to T before they meet the values
// source:  FlashAttention-2, algorithm 1; AttentionArgs for masks and queries that see nothing
template <typename Multiply>
__global__ void __launch_bounds__(kAttentionThreads, Multiply::kBlocks)
    attend(const ForwardProblem<typename Multiply::T> p) {
  constexpr int kCols = Multiply::kCols, kRows = Multiply::kRows;
  using Scores = typename Multiply::template Fragment<kCols>;
  using Out = typename Multiply::template Fragment<Multiply::kDim>;
  const AttentionShape& s = p.shape;
  const AttentionMemory<Multiply> memory{dynamic_shared<typename Multiply::T>(), 1};
  const int b = static_cast<int>(blockIdx.x) / s.heads, h = static_cast<int>(blockIdx.x) % s.heads;
  const int kv = h / (s.heads / s.kv_heads);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kOwnRows;
  const int last = min(first + kOwnRows, s.queries) - 1;
  const float* bias = s.bias_row(b, h);
  const float scale = s.scale * kLog2E;

  memory.own(0).template load<kOwnRows>(p.q.row(b, h, first), p.q.row_width, s.queries - first,
                                        s.head_dim, p.q.aligned);
  Out out;
  OnlineSoftmax<Multiply> softmax;
  const auto load = [&](int tile, int stage) {
    const int key = tile * kCols;
    memory.streamed(stage, 0).template load<kCols>(p.k.row(b, kv, key), p.k.row_width, s.keys - key,
                                                   s.head_dim, p.k.aligned);
    memory.streamed(stage, 1).template load<kCols>(p.v.row(b, kv, key), p.v.row_width, s.keys - key,
                                                   s.head_dim, p.v.aligned);
  };

  // A second time over all keys, with equal scores, for the rows that saw none; they add nothing to
  // others.
  bool blind[kRows] = {};
  TileRange range = visible_keys<kCols>(s, b, first, last);
  const int last_begin = s.first_visible(b, last);
  for (bool again = false;; again = true) {
    stream_tiles(range.begin, range.end, load, [&](int tile, int stage) {
      const int key = tile * kCols;
      Scores scores;
      Multiply::multiply(memory.own(0), memory.streamed(stage, 0), scores);
      const bool masked = s.hides_some(first, last_begin, key, key + kCols - 1);
      int begins[kRows] = {};  // not kept from tile to tile: most are not masked
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
          float& score = scores.at(i, j);
          score = fmaf(score, scale, added);
          if (masked && s.hides(first + Multiply::row(i), column, begins[i])) score = -kInfinity;
          if (again) score = blind[i] && column < s.keys ? 0.0f : -kInfinity;
        }
      }
      softmax.add(scores, out);
      if (s.samples) {
        KeepDraw keep(s, b, h);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < Scores::kOfThread; ++j) {
            scores.at(i, j) *= keep(first + Multiply::row(i), key + Multiply::score_column(j));
          }
        }
      }
      Multiply::add_product(scores, memory.streamed(stage, 1), out, memory.scratch());
    });
    if (again) break;
    bool any = false;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      blind[i] = softmax.maximum[i] == -kInfinity;
      any |= blind[i] && first + Multiply::row(i) <= last;
    }
    if (!__syncthreads_or(any)) break;
    range = {0, (s.keys + kCols - 1) / kCols};
  }

  float factor[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float total = reduce_row<Multiply>(softmax.total[i], Sum{});
    factor[i] = 1.0f / total;
    const int query = first + Multiply::row(i);
    if (query <= last && lane_index() % Multiply::kLanesOfRow == 0) {
      p.log_sum_exp[(static_cast<int64_t>(b) * s.heads + h) * s.queries + query] =
          blind[i] ? -kInfinity : fmaf(softmax.maximum[i], kLn2, logf(total));
    }
  }
  store_rows<Multiply>(out, factor, p.out, b, h, first, s.queries, s.head_dim);
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const AttentionForwardArgs& args) {
  const Op op(*this, stream, args);
  if (CudnnAttention* cudnn = cudnn_attention(); cudnn && cudnn->forward(op, args)) return;
  const AttentionShape shape(args.in);
  dispatch_attention<64, 64>(
      args.out.dtype(), shape.head_dim, op.name(), [&]<typename Multiply>(TypeTag<Multiply>) {
        using T = typename Multiply::T;
        launch(attend<Multiply>,
               Grid(int64_t{shape.batch} * shape.heads, blocks_for(shape.queries, kOwnRows)),
               kAttentionThreads, AttentionMemory<Multiply>::bytes(1), op,
               ForwardProblem<T>{shape, HeadRows<T>(args.in.q), HeadRows<T>(args.in.k),
                                 HeadRows<T>(args.in.v), HeadRows<T>(args.out, shape.head_dim),
                                 args.log_sum_exp.data_as<float>()});
      });
}

}  // namespace fsdp::cuda
