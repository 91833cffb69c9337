// AdamW over a flat shard in one pass: master, exp_avg and exp_avg_sq are read and written, the
// gradient read and the rounded copy written, 16 bytes at a time. Bound by memory.
#include "kernels/cuda/elements.h"
#include "kernels/cuda/kernel_table.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 8;                         // elements that a thread takes at a time
constexpr int64_t kTile = 2 * kThreads * kRun;  // elements that a block takes at a time
constexpr int64_t kBlocksPerMultiprocessor = 8;

struct Segment {
  int64_t begin, end;
  int64_t first_tile;  // numbered over all segments
  int32_t parameter, decay;
};

// Scalars of one segment at this step, computed in double.
struct Coefficients {
  float keep, step_size, correction2_root;
  int32_t active;  // 0: stands still
};

struct Hyperparameters {
  double beta1, beta2, epsilon, weight_decay;
};

struct StepState {
  const int32_t* step_counts;
  const int32_t* present;
  const double* learning_rate;
  const int32_t* skip;
};

// mapping: a thread per segment
// bytes:   few
// in f64:  all
// source:  core/kernel_args.h, AdamWArgs
__global__ void __launch_bounds__(kThreads)
    adamw_coefficients(const __grid_constant__ KernelTable<Segment> segments, Hyperparameters h,
                       StepState state, Coefficients* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= segments.count) return;
  const Segment segment = segments[i];
  const double t = state.step_counts[segment.parameter], rate = *state.learning_rate;
  out[i] = {.keep = static_cast<float>(segment.decay ? 1 - rate * h.weight_decay : 1.0),
            .step_size = static_cast<float>(rate / (1 - pow(h.beta1, t))),
            .correction2_root = static_cast<float>(sqrt(1 - pow(h.beta2, t))),
            .active = *state.skip == 0 && state.present[segment.parameter] != 0};
}

struct AdamWShard {
  float* master;
  AnyElements grad;
  float* exp_avg;
  float* exp_avg_sq;
  AnyElements copy;  // data null: none
  KernelTable<Segment> segments;
  const Coefficients* coefficients;  // by segment
  int64_t tiles;
  const float* gradient_scale;
  float beta1_rest, beta2, beta2_rest, epsilon;
  bool aligned;

  template <int V>
  __device__ __forceinline__ void update(int64_t i, const Coefficients& k, float scale) const {
    float p[V], g[V], m[V], v[V];
    load_widened<V>(master + i, p);
    grad.load<V>(i, g);
    load_widened<V>(exp_avg + i, m);
    load_widened<V>(exp_avg_sq + i, v);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      g[j] *= scale;
      m[j] += beta1_rest * (g[j] - m[j]);
      v[j] = beta2 * v[j] + (beta2_rest * g[j]) * g[j];
      const float denominator = sqrtf(v[j]) / k.correction2_root + epsilon;
      p[j] = p[j] * k.keep - k.step_size * (m[j] / denominator);
    }
    store_narrowed<V>(exp_avg + i, m);
    store_narrowed<V>(exp_avg_sq + i, v);
    store_narrowed<V>(master + i, p);
    if (copy.data) copy.store<V>(i, p);
  }
};

// mapping: a block per tile of a segment, a grid that fills the device; eight elements a thread,
//          runs begin at multiples of eight wherever segments do
// bytes:   24 an element, and those of gradient and copy
// in f32:  the update, in PyTorch's order of operations
// source:  Loshchilov & Hutter, ICLR 2019, "Decoupled weight decay regularization"
__global__ void __launch_bounds__(kThreads) adamw_tiles(const __grid_constant__ AdamWShard a) {
  const float scale = *a.gradient_scale;
  for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const int64_t index = a.segments.last_at_or_before(&Segment::first_tile, tile);
    const Coefficients k = a.coefficients[index];
    if (k.active == 0) continue;
    const Segment segment = a.segments[index];
    const int64_t first = segment.begin / kRun * kRun + (tile - segment.first_tile) * kTile;
    const int64_t begin = first < segment.begin ? segment.begin : first;
    const int64_t end = first + kTile < segment.end ? first + kTile : segment.end;
    each_run<kRun>(begin, end, a.aligned, threadIdx.x, kThreads,
                   [&]<int V>(int64_t i) { a.template update<V>(i, k, scale); });
  }
}

}  // namespace

void CudaBackend::adamw(Stream& stream, const AdamWArgs& args) {
  const Op op(*this, stream, "adamw", args.master, args.grad, args.copy);
  FSDP_CHECK(args.master.dtype() == DType::kF32,
             "[adamw] dtype of master: expected f32 on a GPU, got {}",
             fsdp::name_of(args.master.dtype()));
  dispatch_device(args.grad.dtype(), op.name(), [](auto) {});  // refuses the others by name
  const Tensor& copy = args.copy ? *args.copy : args.master;
  dispatch_device(copy.dtype(), op.name(), [](auto) {});
  std::vector<Segment> segments;
  int64_t tiles = 0;
  for (const ShardSegment& s : args.segments) {
    if (s.begin == s.end) continue;
    segments.push_back({s.begin, s.end, tiles, s.parameter, s.decay});
    tiles += blocks_for(s.end - s.begin / kRun * kRun, kTile);
  }
  const auto count = static_cast<int64_t>(segments.size());
  const TableOwner<Segment> owner(op, segments);
  const Workspace<Coefficients> coefficients(op, count);
  launch(adamw_coefficients, Grid(blocks_for(count, kThreads)), kThreads, 0, op, owner.table(),
         Hyperparameters{args.beta1, args.beta2, args.epsilon, args.weight_decay},
         StepState{args.step_counts.data_as<int32_t>(), args.present.data_as<int32_t>(),
                   args.learning_rate.data_as<double>(), args.skip.data_as<int32_t>()},
         coefficients.data());
  AdamWShard shard = {
      .master = args.master.data_as<float>(),
      .grad = AnyElements(args.grad),
      .exp_avg = args.exp_avg.data_as<float>(),
      .exp_avg_sq = args.exp_avg_sq.data_as<float>(),
      .copy = AnyElements(copy),
      .segments = owner.table(),
      .coefficients = coefficients.data(),
      .tiles = tiles,
      .gradient_scale = args.gradient_scale.data_as<float>(),
      .beta1_rest = static_cast<float>(1 - args.beta1),
      .beta2 = static_cast<float>(args.beta2),
      .beta2_rest = static_cast<float>(1 - args.beta2),
      .epsilon = static_cast<float>(args.epsilon),
      .aligned = aligned_to_16({args.master.data(), args.grad.data(), args.exp_avg.data(),
                                args.exp_avg_sq.data(), copy.data()})};
  if (!args.copy) shard.copy.data = nullptr;
  const int64_t blocks = std::min(kBlocksPerMultiprocessor * device_.multiprocessors, tiles);
  launch(adamw_tiles, Grid(blocks), kThreads, 0, op, shard);
}

}  // namespace fsdp::cuda
