// The gradient of a table lookup, the same bits every time: (token, index) pairs are sorted, so
// that the rows of dy that belong to one row of the table follow each other in order; warps add up
// 32 of them each, and runs that are longer than that in a second step.
#include "core/layer_args.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kChunk = 32;  // sorted pairs of one warp

// A token and its index into the batch. All differ, so that a sort has one result.
using Pair = uint64_t;
__device__ __forceinline__ int64_t token_of(Pair pair) { return static_cast<int64_t>(pair >> 32); }
__device__ __forceinline__ int64_t index_of(Pair pair) {
  return static_cast<int64_t>(pair & 0xffffffffu);
}

// ---- sort ----

// mapping: a thread per pair, which counts the smaller ones of its block
// bytes:   12 a pair
// in i64:  all
// source:  none (rank sort)
__global__ void __launch_bounds__(kThreads)
    sort_blocks(const int32_t* tokens, int64_t n, Pair* out) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads, i = first + threadIdx.x;
  FSDP_SHARED(pairs, Pair[kThreads]);
  Pair own = ~Pair{0};
  // A negative token becomes a large one: both lie outside of the table.
  if (i < n) own = Pair{static_cast<uint32_t>(tokens[i])} << 32 | static_cast<uint64_t>(i);
  pairs[threadIdx.x] = own;
  __syncthreads();
  if (i >= n) return;
  int rank = 0;
#pragma unroll 8
  for (int other = 0; other < kThreads; ++other) rank += pairs[other] < own;
  out[first + rank] = own;
}

// mapping: a thread per pair of two sorted runs of `length`, which finds its place in the other one
// bytes:   16 a pair, and the search, from a cache
// in i64:  all
// source:  none (merge by rank)
__global__ void __launch_bounds__(kThreads)
    merge_runs(const Pair* in, int64_t n, int64_t length, Pair* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const Pair own = in[i];
  const int64_t run = i / length, sibling = (run ^ 1) * length, pair_begin = run / 2 * 2 * length;
  int64_t low = sibling < n ? sibling : n;
  int64_t high = sibling + length < n ? sibling + length : n;
  const int64_t begin = low;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (in[middle] < own) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  out[pair_begin + i % length + (low - begin)] = own;
}

// ---- sums ----

struct Scatter {
  const Pair* pairs;  // (n), sorted
  AnyElements dtable;
  float* partials;  // (chunks, 2, columns): of the runs that cross a chunk's begin and its end
  int64_t n, vocabulary, columns;
  bool accumulate;

  __device__ bool same_token(int64_t a, int64_t b) const {
    return token_of(pairs[a]) == token_of(pairs[b]);
  }
  __device__ bool enters(int64_t begin) const { return begin > 0 && same_token(begin - 1, begin); }
  template <int V>
  __device__ void store(int64_t token, int64_t column, float (&sums)[V]) const {
    if (token >= vocabulary) return;  // told by the forward pass: see indices.h
    const int64_t to = token * columns + column;
    if (accumulate) {
      float before[V];
      dtable.load<V>(to, before);
#pragma unroll
      for (int j = 0; j < V; ++j) sums[j] += before[j];
    }
    dtable.store<V>(to, sums);
  }
};

// mapping: a warp per 32 sorted pairs (grid x) and 32 V columns (grid y)
// bytes:   those of dy, and of the rows that are touched; 8 C for every chunk that a run crosses
// in f32:  the sums, in the order of the batch
// source:  core/kernel_args.h, embedding_backward; the chunks: none
template <typename T, int V>
__global__ void __launch_bounds__(kThreads) sum_pairs(const T* dy, Scatter a) {
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < a.n ? begin + kChunk : a.n;
  const int64_t column =
      (static_cast<int64_t>(blockIdx.y) * kWarpSize + threadIdx.x % kWarpSize) * V;
  if (begin >= a.n || column >= a.columns) return;
  float* head = a.partials + chunk * 2 * a.columns + column;
  bool from_before = a.enters(begin);
  float sums[V] = {}, values[V], next[V];
  load_widened<V>(dy + index_of(a.pairs[begin]) * a.columns + column, next);
  for (int64_t i = begin; i < end; ++i) {
#pragma unroll
    for (int j = 0; j < V; ++j) values[j] = next[j];
    if (i + 1 < end) {  // on its way while this one is added
      load_widened<V>(dy + index_of(a.pairs[i + 1]) * a.columns + column, next);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) sums[j] += values[j];
    const bool ends = i + 1 == a.n || !a.same_token(i, i + 1);
    if (!ends && i + 1 < end) continue;
    if (from_before) {
      store_narrowed<V>(head, sums);
    } else if (!ends) {
      store_narrowed<V>(head + a.columns, sums);
    } else {
      a.store(token_of(a.pairs[i]), column, sums);
    }
    from_before = false;
#pragma unroll
    for (int j = 0; j < V; ++j) sums[j] = 0;
  }
}

// mapping: as sum_pairs; those warps work in whose chunk a run begins that goes on in the next
// bytes:   8 C for every chunk that a run crosses
// in f32:  the sums, chunk by chunk
// source:  none
template <int V>
__global__ void __launch_bounds__(kThreads) join_chunks(Scatter a) {
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  const int64_t begin = chunk * kChunk, end = begin + kChunk;
  const int64_t column =
      (static_cast<int64_t>(blockIdx.y) * kWarpSize + threadIdx.x % kWarpSize) * V;
  if (end >= a.n || column >= a.columns || !a.enters(end)) return;
  if (a.same_token(begin, end - 1) && a.enters(begin)) return;  // it came from further back
  const int64_t token = token_of(a.pairs[end]);
  float sums[V];
  load_widened<V>(a.partials + (2 * chunk + 1) * a.columns + column, sums);
  // chunk c holds a part of the run as long as the run enters it
  for (int64_t at = end; at < a.n && a.enters(at) && token_of(a.pairs[at]) == token; at += kChunk) {
    float values[V];
    load_widened<V>(a.partials + at / kChunk * 2 * a.columns + column, values);
#pragma unroll
    for (int j = 0; j < V; ++j) sums[j] += values[j];
  }
  a.store(token, column, sums);
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const EmbeddingBackwardArgs& args) {
  const Tensor &tokens = args.tokens, &dy = args.dy, &dtable = args.dtable;
  const Op op(*this, stream, args);
  dispatch_device(dtable.dtype(), op.name(), [](auto) {});  // refuses the others by name
  if (!args.accumulate) fill_zero(stream, dtable.data(), dtable.bytes());
  const int64_t n = tokens.numel(), columns = dtable.shape()[1], blocks = blocks_for(n, kThreads);
  const Workspace<Pair> both(op, 2 * n);
  Pair *pairs = both.data(), *other = pairs + n;
  launch(sort_blocks, Grid(blocks), kThreads, 0, op, tokens.data_as<int32_t>(), n, pairs);
  for (int64_t length = kThreads; length < n; length *= 2) {
    launch(merge_runs, Grid(blocks), kThreads, 0, op, pairs, n, length, other);
    std::swap(pairs, other);
  }
  const int64_t chunks = blocks_for(n, kChunk);
  const Workspace<float> partials(op, chunks * 2 * columns);
  const Scatter scatter = {pairs,   AnyElements(dtable), partials.data(), n, args.vocabulary(),
                           columns, args.accumulate};
  dispatch_device(dy.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    constexpr int kRun = run_of<T>();
    const bool aligned = aligned_to_16({dy.data(), dtable.data()}) && columns % kRun == 0;
    const int64_t across = blocks_for(columns, kWarpSize * (aligned ? kRun : 1));
    const Grid grid(blocks_for(chunks, kWarps), across);
    launch(aligned ? sum_pairs<T, kRun> : sum_pairs<T, 1>, grid, kThreads, 0, op, dy.data_as<T>(),
           scatter);
    launch(aligned ? join_chunks<kRun> : join_chunks<1>, grid, kThreads, 0, op, scatter);
  });
}

}  // namespace fsdp::cuda
