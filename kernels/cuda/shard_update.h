// What the optimizers' kernels share: the walk over a flat shard, tile by tile, and the rounded
// copy. Everything is read and written once, 16 bytes at a time. A rule (adam.cu, adamax.cu,
// adadelta.cu, sgd.cu) brings the arithmetic:
//   Coefficients   scalars of one segment at one step
//   Coefficients at(double rate, double t, double weight_decay) const
//                  weight_decay: 0 where the segment has none
//   void update<V>(int64_t i, const Coefficients&, float scale, float (&p)[V], float (&g)[V]) const
//                  steps elements [i, i + V), whose master is p; g: gradient before `scale`
#pragma once

#include "kernels/cuda/elements.h"
#include "kernels/cuda/kernel_table.h"

namespace fsdp::cuda {

constexpr int kUpdateThreads = 256;
constexpr int kUpdateRun = 8;  // elements that a thread takes at a time
constexpr int64_t kUpdateTile = 2 * kUpdateThreads * kUpdateRun;  // and a block
constexpr int64_t kUpdateBlocksPerMultiprocessor = 8;

// g + decay * p, and g itself where there is no decay, whatever p is.
__device__ __forceinline__ float with_decay(float g, float p, float decay) {
  return decay == 0 ? g : g + decay * p;
}

struct UpdateSegment {
  int64_t begin, end;
  int64_t first_tile;  // numbered over all segments
  int32_t parameter, decay;
};

struct UpdateState {
  const int32_t* step_counts;
  const int32_t* present;
  const double* learning_rate;
  const int32_t* skip;
  double weight_decay;
};

template <typename Rule>
struct SegmentCoefficients {
  typename Rule::Coefficients rule;
  int32_t active;  // 0: stands still
};

template <typename Rule>
struct TiledShard {
  float* master;
  AnyElements grad;
  AnyElements copy;  // data null: none
  KernelTable<UpdateSegment> segments;
  const SegmentCoefficients<Rule>* coefficients;  // by segment
  int64_t tiles;
  const float* gradient_scale;
  Rule rule;
  bool aligned;

  template <int V>
  __device__ __forceinline__ void update(int64_t i, const typename Rule::Coefficients& k,
                                         float scale) const {
    float p[V], g[V];
    load_widened<V>(master + i, p);
    grad.load<V>(i, g);
    rule.template update<V>(i, k, scale, p, g);
    store_narrowed<V>(master + i, p);
    if (copy.data) copy.store<V>(i, p);
  }
};

// mapping: a thread per segment
// bytes:   few
// in f64:  all
// source:  core/kernel_args.h, ShardUpdate
template <typename Rule>
__global__ void __launch_bounds__(kUpdateThreads)
    segment_coefficients(const __grid_constant__ KernelTable<UpdateSegment> segments, Rule rule,
                         UpdateState state, SegmentCoefficients<Rule>* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kUpdateThreads + threadIdx.x;
  if (i >= segments.count) return;
  const UpdateSegment segment = segments[i];
  out[i] = {.rule = rule.at(*state.learning_rate, state.step_counts[segment.parameter],
                            segment.decay ? state.weight_decay : 0.0),
            .active = *state.skip == 0 && state.present[segment.parameter] != 0};
}

// mapping: a block per tile of a segment, a grid that fills the device; eight elements a thread,
//          runs begin at multiples of eight wherever segments do
// bytes:   8 an element, those of gradient and copy, and those of the rule's state
// in f32:  the update, in PyTorch's order of operations
// source:  core/kernel_args.h, by rule
template <typename Rule>
__global__ void __launch_bounds__(kUpdateThreads)
    update_tiles(const __grid_constant__ TiledShard<Rule> a) {
  const float scale = *a.gradient_scale;
  for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const int64_t index = a.segments.last_at_or_before(&UpdateSegment::first_tile, tile);
    const SegmentCoefficients<Rule> k = a.coefficients[index];
    if (k.active == 0) continue;
    const UpdateSegment segment = a.segments[index];
    const int64_t first =
        segment.begin / kUpdateRun * kUpdateRun + (tile - segment.first_tile) * kUpdateTile;
    const int64_t begin = first < segment.begin ? segment.begin : first;
    const int64_t end = first + kUpdateTile < segment.end ? first + kUpdateTile : segment.end;
    each_run<kUpdateRun>(begin, end, a.aligned, threadIdx.x, kUpdateThreads,
                         [&]<int V>(int64_t i) { a.template update<V>(i, k.rule, scale); });
  }
}

// `state`: the rule's tensors, which the walk only asks whether they are aligned.
template <typename Rule>
void update_shard(const Op& op, const ShardUpdate& args, const Rule& rule,
                  std::initializer_list<const Tensor*> state) {
  FSDP_CHECK(args.master.dtype() == DType::kF32,
             "[{}] dtype of master: expected f32 on a GPU, got {}", op.name(),
             fsdp::name_of(args.master.dtype()));
  dispatch_device(args.grad.dtype(), op.name(), [](auto) {});  // refuses the others by name
  const Tensor& copy = args.copy ? *args.copy : args.master;
  dispatch_device(copy.dtype(), op.name(), [](auto) {});
  std::vector<UpdateSegment> segments;
  int64_t tiles = 0;
  for (const ShardSegment& s : args.segments) {
    if (s.begin == s.end) continue;
    segments.push_back({s.begin, s.end, tiles, s.parameter, s.decay});
    tiles += blocks_for(s.end - s.begin / kUpdateRun * kUpdateRun, kUpdateTile);
  }
  const auto count = static_cast<int64_t>(segments.size());
  const TableOwner<UpdateSegment> owner(op, segments);
  const Workspace<SegmentCoefficients<Rule>> coefficients(op, count);
  launch(segment_coefficients<Rule>, Grid(blocks_for(count, kUpdateThreads)), kUpdateThreads, 0, op,
         owner.table(), rule,
         UpdateState{args.step_counts.data_as<int32_t>(), args.present.data_as<int32_t>(),
                     args.learning_rate.data_as<double>(), args.skip.data_as<int32_t>(),
                     args.weight_decay},
         coefficients.data());
  TiledShard<Rule> shard = {
      .master = args.master.data_as<float>(),
      .grad = AnyElements(args.grad),
      .copy = AnyElements(copy),
      .segments = owner.table(),
      .coefficients = coefficients.data(),
      .tiles = tiles,
      .gradient_scale = args.gradient_scale.data_as<float>(),
      .rule = rule,
      .aligned = aligned_to_16({args.master.data(), args.grad.data(), copy.data()})};
  for (const Tensor* tensor : state) {
    shard.aligned = shard.aligned && aligned_to_16({tensor->data()});
  }
  if (!args.copy) shard.copy.data = nullptr;
  const int64_t blocks =
      std::min(kUpdateBlocksPerMultiprocessor * op.device().multiprocessors, tiles);
  launch(update_tiles<Rule>, Grid(blocks), kUpdateThreads, 0, op, shard);
}

}  // namespace fsdp::cuda
