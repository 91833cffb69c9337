// Norms of gradients: sums of powers in one read, in blocks that do not depend on the device, and
// the clip coefficient that follows. What is not finite makes the sum not finite: no other check.
#include <cmath>

#include "core/shard_args.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/reduce.h"

namespace fsdp::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int64_t kBlocksPerMultiprocessor = 8;  // fills the device exactly

enum class Power { kOne, kTwo, kInfinity, kOther };

Power kind_of(double power) {
  if (std::isinf(power)) return Power::kInfinity;
  return power == 2 ? Power::kTwo : power == 1 ? Power::kOne : Power::kOther;
}

// Adds, or takes the larger: NaN if either is.
struct Combine {
  bool maximum;

  template <typename A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    if (!maximum) return a + b;
    return a != a || a >= b ? a : b;
  }
};

template <Power kPower, typename A>
__device__ __forceinline__ A term(A x, [[maybe_unused]] A p) {
  if constexpr (kPower == Power::kTwo) return x * x;
  if constexpr (kPower == Power::kOther) return pow(fabs(x), p);
  return fabs(x);
}

// A span of elements in pieces of kNormBlock, numbered over all spans.
struct Span {
  int64_t begin, end, first_piece;
  int64_t out;  // where the sum of its first piece goes
};

struct PowerSum {
  KernelTable<Span> spans;
  int64_t pieces;
  Power kind;
  double power;
  double* sums;        // (), one of a block
  double* pieces_out;  // null, or where the sum of each piece goes
};

// One warp; the same sum in every lane. Which lane takes which element depends on the distance from
// `begin` alone, not on its alignment.
template <Power kPower, typename T>
__device__ Accumulate<T> sum_piece(const T* x, int64_t begin, int64_t end, bool aligned,
                                   Accumulate<T> p) {
  using A = Accumulate<T>;
  constexpr int V = run_of<T>();
  const Combine combine{kPower == Power::kInfinity};
  const int64_t first = begin + threadIdx.x % kWarpSize * V;
  A sum = 0;
#pragma unroll
  for (int i = 0; i < kNormBlock; i += kWarpSize * V) {
    A values[V];
    if (aligned && first + i + V <= end) {
      load_widened<V>(x + first + i, values);
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        values[j] = first + i + j < end ? widened<A>(x[first + i + j]) : A(0);
      }
    }
#pragma unroll
    for (int j = 0; j < V; ++j) sum = combine(sum, term<kPower>(values[j], p));
  }
  return warp_reduce(sum, combine);
}

// mapping: a warp per piece of 1024 elements, a grid that fills the device
// bytes:   those of x, once
// in f32:  terms and the sum of a piece (f64 for f64); pieces add up in f64
// source:  core/kernel_args.h, PowerSumArgs
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_pieces(const T* x, const __grid_constant__ PowerSum a) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const Combine combine{a.kind == Power::kInfinity};
  double total = 0;
  const auto all_pieces = [&]<Power kPower>() {
    for (int64_t piece = static_cast<int64_t>(blockIdx.x) * kWarps + warp; piece < a.pieces;
         piece += static_cast<int64_t>(gridDim.x) * kWarps) {
      const Span span = a.spans[a.spans.last_at_or_before(&Span::first_piece, piece)];
      const int64_t index = piece - span.first_piece, begin = span.begin + index * kNormBlock;
      const int64_t end = begin + kNormBlock < span.end ? begin + kNormBlock : span.end;
      const bool aligned = reinterpret_cast<uintptr_t>(x + begin) % 16 == 0;
      const double sum = static_cast<double>(
          sum_piece<kPower>(x, begin, end, aligned, static_cast<Accumulate<T>>(a.power)));
      if (a.pieces_out && lane == 0) a.pieces_out[span.out + index] = sum;
      total = combine(total, sum);
    }
  };
  switch (a.kind) {
    case Power::kOne:
      all_pieces.template operator()<Power::kOne>();
      break;
    case Power::kTwo:
      all_pieces.template operator()<Power::kTwo>();
      break;
    case Power::kInfinity:
      all_pieces.template operator()<Power::kInfinity>();
      break;
    default:
      all_pieces.template operator()<Power::kOther>();
  }
  if (a.pieces_out) return;
  total = block_reduce<kThreads>(lane == 0 ? total : 0, combine);
  if (threadIdx.x == 0) a.sums[blockIdx.x] = total;
}

// mapping: one block
// bytes:   eight a block of sum_pieces
// in f64:  all
// source:  as sum_pieces
__global__ void __launch_bounds__(kThreads)
    finish_sum(const double* sums, int64_t count, Combine combine, double* out, bool accumulate) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) total = combine(total, sums[i]);
  total = block_reduce<kThreads>(total, combine);
  if (threadIdx.x == 0) *out = accumulate ? combine(*out, total) : total;
}

struct Clip {
  const double* power_sum;
  double power;
  double max_norm;
  double skip_above;
  const float* loss_scale;  // or null
  const int32_t* overflow;  // or null
  double* norm;
  AnyElements coefficient;
  int32_t* skip;
};

// mapping: one thread
// bytes:   a few scalars
// in f64:  all
// source:  core/kernel_args.h, ClipArgs; torch.nn.utils.clip_grad_norm_
__global__ void clip(Clip a) {
  const double unscale = a.loss_scale ? 1 / static_cast<double>(*a.loss_scale) : 1;
  const double root = std::isinf(a.power) ? *a.power_sum : pow(*a.power_sum, 1 / a.power);
  const double norm = root * unscale, ratio = a.max_norm / (norm + 1e-6);
  // min(1, ratio), which is 1 of a NaN
  const double coefficient[1] = {unscale * (a.max_norm > 0 && ratio < 1 ? ratio : 1)};
  *a.norm = norm;
  const bool usable = std::isfinite(norm) && !(a.overflow && *a.overflow != 0);
  *a.skip = !usable ? kNotFinite : norm > a.skip_above ? kSpike : kNotSkipped;
  a.coefficient.store<1>(0, coefficient);
}

template <typename T>
T* data_or_null(const Tensor* tensor) {
  return tensor ? tensor->data_as<T>() : nullptr;
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const PowerSumArgs& args) {
  const Op op(*this, stream, args);
  std::vector<Span> spans;
  int64_t pieces = 0;
  for (size_t i = 0; i < args.spans.size(); ++i) {
    const auto [begin, end] = args.spans[i];
    spans.push_back({begin, end, pieces, args.first_blocks ? (*args.first_blocks)[i] : 0});
    pieces += blocks_for(end - begin, kNormBlock);
  }
  const int64_t blocks =
      std::min(kBlocksPerMultiprocessor * device_.multiprocessors, blocks_for(pieces, kWarps));
  const TableOwner<Span> owner(op, spans);
  const Workspace<double> sums(op, blocks);
  const Power kind = kind_of(args.power);
  double* out = args.out.data_as<double>();
  dispatch_device_wide(args.x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    launch(sum_pieces<T>, Grid(blocks), kThreads, 0, op, args.x.data_as<T>(),
           PowerSum{owner.table(), pieces, kind, args.power, sums.data(),
                    args.first_blocks ? out : nullptr});
  });
  if (args.first_blocks) return;
  launch(finish_sum, Grid(1), kThreads, 0, op, sums.data(), blocks,
         Combine{kind == Power::kInfinity}, out, args.accumulate);
}

template <>
void CudaBackend::compute(Stream& stream, const ClipArgs& args) {
  const Op op(*this, stream, args);
  launch(clip, Grid(1), 1, 0, op,
         Clip{args.power_sum.data_as<double>(), args.power, args.max_norm, args.skip_above,
              data_or_null<float>(args.loss_scale), data_or_null<int32_t>(args.overflow),
              args.norm.data_as<double>(), AnyElements(args.coefficient),
              args.skip.data_as<int32_t>()});
}

}  // namespace fsdp::cuda
