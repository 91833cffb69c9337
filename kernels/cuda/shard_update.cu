// The optimizers' rules (core/optimizer_rules) over a flat shard in one pass, tile by tile: master
// and states are read and written, the gradient read and the rounded copy written, each once, 16
// bytes at a time. Bound by memory. Values of 16 bits are widened in registers, stepped there, and
// rounded as they are stored.
#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/kernel_table.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 8;  // elements that a thread takes at a time, as many as a Philox block has
constexpr int64_t kTile = 2 * kThreads * kRun;  // and a block
constexpr int64_t kBlocksPerMultiprocessor = 8;

struct Segment {
  int64_t begin, end;
  int64_t first_tile;  // numbered over all segments
  int32_t parameter, decay;
};

constexpr int kMostValues = 3;
struct NarrowSegment : Segment {
  int64_t first;                // element of the parameter that is at `begin`
  uint64_t draws[kMostValues];  // what draws are keyed by, by value
};

struct UpdateState {
  const int32_t* step_counts;
  const int32_t* present;
  const double* learning_rate;
  const int32_t* skip;
  double weight_decay;
};

template <typename Rule>
struct SegmentNumbers {
  typename Rule::template Numbers<float> rule;
  int32_t active;  // 0: stands still
};

// ---- values of a shard: the master and the states ----

struct WideValue {
  using Row = Segment;
  float* data;

  explicit WideValue(const Tensor& tensor, bool /*by_chance*/) : data(tensor.data_as<float>()) {}
  template <int V>
  __device__ __forceinline__ void load(int64_t i, float (&x)[V]) const {
    load_widened<V>(data + i, x);
  }
  template <int V>
  __device__ __forceinline__ void store(int64_t i, float (&x)[V], const Segment&, int,
                                        const RoundingStream&) const {
    store_narrowed<V>(data + i, x);
  }
  // Whether runs may be stored as a whole.
  static __device__ __forceinline__ bool whole(const Segment&) { return true; }
};

union FloatBits {
  float value;
  uint32_t bits;
};

// Of any dtype; one kernel for all.
struct NarrowValue {
  using Row = NarrowSegment;
  AnyElements elements;
  bool by_chance;

  NarrowValue(const Tensor& tensor, bool rounded_by_chance)
      : elements(tensor), by_chance(rounded_by_chance) {}
  template <int V>
  __device__ __forceinline__ void load(int64_t i, float (&x)[V]) const {
    elements.load<V>(i, x);
  }
  // x becomes what is stored. A run of eight is a Philox block.
  template <int V>
  __device__ __forceinline__ void store(int64_t i, float (&x)[V], const NarrowSegment& row,
                                        int value, const RoundingStream& stream) const {
    if (by_chance) {
      const auto element = static_cast<uint64_t>(row.first + i - row.begin);
      const Philox4x32 words = stream.words(row.draws[value], element / kRun);
#pragma unroll
      for (uint32_t j = 0; j < kRun; ++j) {
        if (V != kRun && j != element % kRun) continue;
        FloatBits one = {x[V == kRun ? j : 0]};
        one.bits = uint32_t{rounded_by_chance(one.bits, RoundingStream::draw(words, j))} << 16;
        x[V == kRun ? j : 0] = one.value;
      }
    } else {
      elements.as_type([&]<typename T>(T*) {
#pragma unroll
        for (int j = 0; j < V; ++j) x[j] = widened<float>(narrowed<T>(x[j]));
      });
    }
    elements.store<V>(i, x);
  }
  static __device__ __forceinline__ bool whole(const NarrowSegment& row) {
    return (row.first - row.begin) % kRun == 0;
  }
};

// ---- kernels ----

template <typename Rule, typename Value, int kStates>
struct TiledShard {
  Value values[1 + kStates];  // the master, then the states
  AnyElements grad;
  AnyElements copy;  // data null: none
  KernelTable<typename Value::Row> segments;
  const SegmentNumbers<Rule>* numbers;  // by segment
  int64_t tiles;
  const float* gradient_scale;
  RoundingStream stream;
  bool aligned;

  template <int V>
  __device__ __forceinline__ void update(int64_t i, const typename Rule::template Numbers<float>& k,
                                         float scale, const typename Value::Row& row) const {
    constexpr int kPlaces = Rule::kStates.size();
    float p[V], g[V], s[kPlaces][V];
    values[0].template load<V>(i, p);
    grad.load<V>(i, g);
#pragma unroll
    for (int v = 0; v < kStates; ++v) values[1 + v].template load<V>(i, s[v]);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      std::array<float, kPlaces> of_element = {};
#pragma unroll
      for (int v = 0; v < kStates; ++v) of_element[v] = s[v][j];
      Rule::step(k, g[j] * scale, p[j], of_element);
#pragma unroll
      for (int v = 0; v < kStates; ++v) s[v][j] = of_element[v];
    }
    values[0].template store<V>(i, p, row, 0, stream);
#pragma unroll
    for (int v = 0; v < kStates; ++v) {
      values[1 + v].template store<V>(i, s[v], row, 1 + v, stream);
    }
    if (copy.data) copy.store<V>(i, p);
  }
};

// mapping: a thread per segment
// bytes:   few
// in f64:  all
// source:  core/optimizer_rules/rule.h, at()
template <typename Rule, typename Row>
__global__ void __launch_bounds__(kThreads)
    segment_numbers(const __grid_constant__ KernelTable<Row> segments, Rule rule, UpdateState state,
                    SegmentNumbers<Rule>* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= segments.count) return;
  const Row& segment = segments[i];
  out[i] = {
      .rule = rule.template at<float>(*state.learning_rate, state.step_counts[segment.parameter],
                                      segment.decay ? state.weight_decay : 0.0),
      .active = *state.skip == 0 && state.present[segment.parameter] != 0};
}

// mapping: a block per tile of a segment, a grid that fills the device; eight elements a thread,
//          runs begin at multiples of eight wherever segments do
// bytes:   of gradient and copy once, of master and states twice
// in f32:  the step, in PyTorch's order of operations
// source:  core/optimizer_rules/rule.h, step()
template <typename Rule, typename Value, int kStates>
__global__ void __launch_bounds__(kThreads, 1)  // without the 1 Adamax on bf16 states spills
    update_tiles(const __grid_constant__ TiledShard<Rule, Value, kStates> a) {
  const float scale = *a.gradient_scale;
  for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const int64_t index = a.segments.last_at_or_before(&Segment::first_tile, tile);
    const SegmentNumbers<Rule> k = a.numbers[index];
    if (k.active == 0) continue;
    const typename Value::Row& segment = a.segments[index];
    const int64_t first = segment.begin / kRun * kRun + (tile - segment.first_tile) * kTile;
    const int64_t begin = first < segment.begin ? segment.begin : first;
    const int64_t end = first + kTile < segment.end ? first + kTile : segment.end;
    each_run<kRun>(begin, end, a.aligned && Value::whole(segment), threadIdx.x, kThreads,
                   [&]<int V>(int64_t i) { a.template update<V>(i, k.rule, scale, segment); });
  }
}

// ---- launches ----

template <typename Row>
std::vector<Row> rows_of(const ShardUpdate& args, int64_t& tiles) {
  std::vector<Row> rows;
  for (const ShardSegment& s : args.segments) {
    if (s.begin == s.end) continue;
    Row row = {};
    static_cast<Segment&>(row) = {s.begin, s.end, tiles, s.parameter, s.decay};
    if constexpr (std::is_same_v<Row, NarrowSegment>) {
      row.first = s.first;
      // A rule of whole matrices may have more values than this one.
      const size_t drawn = args.draws ? std::min<size_t>(args.draws->size(), kMostValues) : 0;
      for (size_t value = 0; value < drawn; ++value) {
        const std::vector<uint64_t>& names = (*args.draws)[value];
        if (!names.empty()) row.draws[value] = names[static_cast<size_t>(s.parameter)];
      }
    }
    rows.push_back(row);
    tiles += blocks_for(s.end - s.begin / kRun * kRun, kTile);
  }
  return rows;
}

template <typename Value, typename Rule, size_t... v>
void launch_update(const Op& op, const UpdateArgs<Rule>& update, std::index_sequence<v...>) {
  const ShardUpdate& args = update.shard;
  using Row = typename Value::Row;
  const auto value = [&](const Tensor& tensor, size_t i) {
    const bool drawn = args.draws && i < args.draws->size() && !(*args.draws)[i].empty();
    return Value(tensor, drawn && tensor.dtype() == DType::kBF16);
  };
  const Tensor& copy = args.copy ? *args.copy : args.master;
  int64_t tiles = 0;
  const std::vector<Row> rows = rows_of<Row>(args, tiles);
  const auto count = static_cast<int64_t>(rows.size());
  const TableOwner<Row> owner(op, rows);
  const Workspace<SegmentNumbers<Rule>> numbers(op, count);
  launch(segment_numbers<Rule, Row>, Grid(blocks_for(count, kThreads)), kThreads, 0, op,
         owner.table(), update.rule,
         UpdateState{args.step_counts.data_as<int32_t>(), args.present.data_as<int32_t>(),
                     args.learning_rate.data_as<double>(), args.skip.data_as<int32_t>(),
                     args.weight_decay},
         numbers.data());
  TiledShard<Rule, Value, sizeof...(v)> shard = {
      .values = {value(args.master, 0), value(*update.state[v], 1 + v)...},
      .grad = AnyElements(args.grad),
      .copy = AnyElements(copy),
      .segments = owner.table(),
      .numbers = numbers.data(),
      .tiles = tiles,
      .gradient_scale = args.gradient_scale.data_as<float>(),
      .stream = RoundingStream(args.seed, args.update),
      .aligned = aligned_to_16(
          {args.master.data(), args.grad.data(), copy.data(), update.state[v]->data()...})};
  if (!args.copy) shard.copy.data = nullptr;
  const int64_t blocks = std::min(kBlocksPerMultiprocessor * op.device().multiprocessors, tiles);
  launch(update_tiles<Rule, Value, sizeof...(v)>, Grid(blocks), kThreads, 0, op, shard);
}

template <typename Rule, size_t... v>
void update_shard(const Op& op, const UpdateArgs<Rule>& args, std::index_sequence<v...> states) {
  static_assert(1 + Rule::kStates.size() <= kMostValues);
  const ShardUpdate& shard = args.shard;
  FSDP_CHECK(shard.master.dtype() != DType::kF64,
             "[{}] dtype of master: expected f32 on a GPU, got f64", op.name());
  bool narrow = false;
  for (const Tensor* tensor : {&shard.master, static_cast<Tensor*>(args.state[v])...}) {
    dispatch_device(tensor->dtype(), op.name(), [](auto) {});  // refuses the others by name
    narrow = narrow || tensor->dtype() != DType::kF32;
  }
  dispatch_device(shard.grad.dtype(), op.name(), [](auto) {});
  if (shard.copy) dispatch_device(shard.copy->dtype(), op.name(), [](auto) {});
  narrow ? launch_update<NarrowValue>(op, args, states)
         : launch_update<WideValue>(op, args, states);
}

template <typename Rule>
void update_shard(const Op& op, const UpdateArgs<Rule>& args) {
  if constexpr (requires { args.rule.keeps_state(); }) {
    if (!args.rule.keeps_state()) return update_shard(op, args, std::index_sequence<>());
  }
  update_shard(op, args, std::make_index_sequence<Rule::kStates.size()>());
}

}  // namespace

#define FSDP_COMPUTE(_, Rule)                                                      \
  template <>                                                                      \
  void CudaBackend::compute(Stream& stream, const UpdateArgs<rules::Rule>& args) { \
    update_shard(Op(*this, stream, args), args);                                   \
  }
FSDP_RULES(FSDP_COMPUTE, )
#undef FSDP_COMPUTE

}  // namespace fsdp::cuda
