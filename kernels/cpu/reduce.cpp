// Reductions: column sums, sums of powers for norms, and the clip coefficient that follows from
// them. Partial sums belong to fixed blocks and are added in order: the same bits for any number of
// threads.
#include <cmath>

#include "core/layer_args.h"
#include "core/shard_args.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/scratch.h"

namespace fsdp::cpu {
namespace {

// ---- sum_rows ----

struct RowsExtents {
  int64_t rows, columns;
  int64_t row_length;  // in memory
};

template <typename T>
void sum_rows_kernel(const T* x, const ColumnTarget& out, const RowsExtents& e, ThreadTeam& team) {
  using Sum = Accumulate<T>;
  const int64_t rows = e.rows, columns = e.columns;
  const auto [block_rows, blocks] = RowBlocks(rows, kLeastSummedRows);
  auto* partials = static_cast<Sum*>(
      team.scratch(0, static_cast<size_t>(std::max<int64_t>(1, blocks * columns)) * sizeof(Sum)));
  team.run(blocks, [&](int64_t block, int) {
    const int64_t first = block * block_rows;
    Sum* partial = partials + block * columns;
    std::fill_n(partial, columns, Sum{0});
    add_rows(x + first * e.row_length, std::min(block_rows, rows - first), columns, e.row_length,
             partial);
  });
  out.add_blocks(partials, blocks, columns, columns, team);
}

// ---- power_sum ----

constexpr int64_t kBlock = kNormBlock;        // elements summed in the accumulation dtype
constexpr int64_t kPiece = int64_t{1} << 16;  // elements of one task
constexpr int kLanes = 16;

enum class Power { kOne, kTwo, kInfinity, kOther };

template <Power power, typename Sum>
Sum term(Sum x, [[maybe_unused]] Sum p) {
  if constexpr (power == Power::kTwo) return x * x;
  if constexpr (power == Power::kOther) return std::pow(std::abs(x), p);
  return std::abs(x);
}

// The larger; NaN if either is. Written so that it becomes compare and blend.
template <typename T>
T larger(T a, T b) {
  return a != a || a >= b ? a : b;
}

// Sum or maximum of the terms of up to kBlock elements, in kLanes interleaved partial sums.
template <Power power, typename T>
double reduce_block(const T* x, int64_t n, Accumulate<T> p) {
  using Sum = Accumulate<T>;
  Sum lanes[kLanes] = {};
  const auto take = [&](int lane, T value) {
    const Sum t = term<power>(static_cast<Sum>(value), p);
    lanes[lane] = power == Power::kInfinity ? larger(lanes[lane], t) : lanes[lane] + t;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) take(lane, x[i + lane]);
  }
  for (int lane = 0; i < n; ++i, ++lane) take(lane, x[i]);
  Sum total = 0;
  for (const Sum lane : lanes) {
    total = power == Power::kInfinity ? larger(total, lane) : total + lane;
  }
  return static_cast<double>(total);
}

struct Piece {
  int64_t begin, end;
};

template <Power power, typename T>
double power_sum_kernel(const T* x, const std::vector<Piece>& pieces, double p, ThreadTeam& team) {
  std::vector<double> partials(pieces.size());
  const auto combine = [](double a, double b) {
    return power == Power::kInfinity ? larger(a, b) : a + b;
  };
  team.run(static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece piece = pieces[static_cast<size_t>(task)];
    double sum = 0;
    for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
      sum = combine(sum, reduce_block<power>(x + i, std::min(kBlock, piece.end - i),
                                             static_cast<Accumulate<T>>(p)));
    }
    partials[static_cast<size_t>(task)] = sum;
  });
  double total = 0;
  for (const double partial : partials) total = combine(total, partial);
  return total;
}

struct BlockSpan {
  int64_t begin, end, first_block;
};

template <Power power, typename T>
void power_blocks_kernel(const T* x, const std::vector<BlockSpan>& spans, double p, double* out,
                         ThreadTeam& team) {
  for (const BlockSpan& span : spans) {
    const int64_t blocks = (span.end - span.begin + kBlock - 1) / kBlock;
    team.run(blocks, [&](int64_t block, int) {
      const int64_t begin = span.begin + block * kBlock;
      out[span.first_block + block] = reduce_block<power>(
          x + begin, std::min(kBlock, span.end - begin), static_cast<Accumulate<T>>(p));
    });
  }
}

template <typename F>
auto with_power(double power, F&& f) {
  if (power == 2) return f.template operator()<Power::kTwo>();
  if (power == 1) return f.template operator()<Power::kOne>();
  if (std::isinf(power)) return f.template operator()<Power::kInfinity>();
  return f.template operator()<Power::kOther>();
}

void enqueue_power_blocks(CpuBackend& backend, Stream& stream, const PowerSumArgs& args) {
  std::vector<BlockSpan> spans;
  for (size_t i = 0; i < args.spans.size(); ++i) {
    spans.push_back({args.spans[i].first, args.spans[i].second, (*args.first_blocks)[i]});
  }
  backend.enqueue(stream, "power_sum", 0,
                  [spans = std::move(spans), x = args.x.data(), dtype = args.x.dtype(),
                   p = args.power, out = args.out.data_as<double>()](Worker& worker) {
                    dispatch_floating(dtype, "power_sum", [&]<typename T>(TypeTag<T>) {
                      with_power(p, [&]<Power power>() {
                        power_blocks_kernel<power>(static_cast<const T*>(x), spans, p, out,
                                                   worker.team);
                      });
                    });
                  });
}

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const SumRowsArgs& args) {
  plan_scratch(stream, scratch_of(args));
  enqueue(
      stream, "sum_rows", 0,
      [x = args.x.data(), dtype = args.x.dtype(), out = ColumnTarget(&args.out, args.accumulate),
       extents = RowsExtents{args.x.shape().rows(), args.out.numel(), args.x.shape().last()}](
          Worker& worker) {
        dispatch_floating(dtype, "sum_rows", [&]<typename T>(TypeTag<T>) {
          sum_rows_kernel(static_cast<const T*>(x), out, extents, worker.team);
        });
      });
}

template <>
void CpuBackend::compute(Stream& stream, const PowerSumArgs& args) {
  if (args.first_blocks) return enqueue_power_blocks(*this, stream, args);
  std::vector<Piece> pieces;
  for (const auto& [begin, end] : args.spans) {
    for (int64_t i = begin; i < end; i += kPiece) pieces.push_back({i, std::min(end, i + kPiece)});
  }
  enqueue(stream, "power_sum", 0,
          [pieces = std::move(pieces), x = args.x.data(), dtype = args.x.dtype(), p = args.power,
           out = args.out.data_as<double>(), accumulate = args.accumulate](Worker& worker) {
            dispatch_floating(dtype, "power_sum", [&]<typename T>(TypeTag<T>) {
              const double sum = with_power(p, [&]<Power power>() {
                return power_sum_kernel<power>(static_cast<const T*>(x), pieces, p, worker.team);
              });
              if (!accumulate) {
                *out = sum;
              } else {
                *out = std::isinf(p) ? larger(*out, sum) : *out + sum;
              }
            });
          });
}

template <>
void CpuBackend::compute(Stream& stream, const ClipArgs& args) {
  enqueue(
      stream, "clip_coefficient", 0,
      [power_sum = args.power_sum.data_as<double>(), power = args.power, max_norm = args.max_norm,
       skip_above = args.skip_above, scale = data_or_null<float>(args.loss_scale),
       overflow = data_or_null<int32_t>(args.overflow), norm_out = args.norm.data_as<double>(),
       coefficient_out = args.coefficient.data(), dtype = args.coefficient.dtype(),
       skip_out = args.skip.data_as<int32_t>()](Worker&) {
        const double unscale = scale ? 1 / static_cast<double>(*scale) : 1;
        const double root = std::isinf(power) ? *power_sum : std::pow(*power_sum, 1 / power);
        const double norm = root * unscale;
        const double ratio = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
        *norm_out = norm;
        const bool usable = std::isfinite(norm) && !(overflow && *overflow != 0);
        *skip_out = !usable ? kNotFinite : norm > skip_above ? kSpike : kNotSkipped;
        dispatch_floating(dtype, "clip_coefficient", [&]<typename T>(TypeTag<T>) {
          *static_cast<T*>(coefficient_out) = static_cast<T>(unscale * ratio);
        });
      });
}

}  // namespace fsdp::cpu
