// The master of a flat shard in bf16, rounded up or down by chance: the same bits as on the CPU.
#include "core/shard_args.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/kernel_table.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 8;                     // elements of a thread: those of a Philox block
constexpr int64_t kTile = kThreads * kRun;  // elements that a block takes at a time
constexpr int64_t kBlocksPerMultiprocessor = 8;

struct Run {
  int64_t begin, end;  // in the shard
  int64_t first;       // element of the parameter that is at `begin`
  int64_t first_tile;  // numbered over all runs
  uint64_t name_hash;
};

struct RoundedShard {
  const uint32_t* x;
  uint16_t* out;
  KernelTable<Run> runs;
  int64_t tiles;
  RoundingStream stream;
  bool aligned;
};

// mapping: a block per tile of a run, a grid that fills the device; a thread takes the eight
//          elements of a parameter that one Philox block is for
// bytes:   6 an element
// in i32:  all: bits, words and the sum of both
// source:  core/rng.h, RoundingStream
__global__ void __launch_bounds__(kThreads) round_tiles(const __grid_constant__ RoundedShard a) {
  for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const Run run = a.runs[a.runs.last_at_or_before(&Run::first_tile, tile)];
    const int64_t element = run.first / kRun * kRun + (tile - run.first_tile) * kTile +
                            static_cast<int64_t>(threadIdx.x) * kRun;
    const int64_t i = run.begin + element - run.first;  // before `begin` where a run begins inside
    if (i >= run.end) continue;
    const Philox4x32 words = a.stream.words(run.name_hash, static_cast<uint64_t>(element) / kRun);
    if (a.aligned && i >= run.begin && i + kRun <= run.end && i % kRun == 0) {
      uint32_t bits[kRun];
      uint16_t rounded[kRun];
      load_run<kRun>(a.x + i, bits);
#pragma unroll
      for (uint32_t j = 0; j < kRun; ++j) {
        rounded[j] = rounded_by_chance(bits[j], RoundingStream::draw(words, j));
      }
      store_narrowed<kRun>(a.out + i, rounded);
      continue;
    }
#pragma unroll
    for (uint32_t j = 0; j < kRun; ++j) {
      if (i + j < run.begin || i + j >= run.end) continue;
      a.out[i + j] = rounded_by_chance(a.x[i + j], RoundingStream::draw(words, j));
    }
  }
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const StochasticRoundArgs& args) {
  const Op op(*this, stream, args);
  std::vector<Run> runs;
  int64_t tiles = 0;
  for (const ParameterRun& r : args.runs) {
    if (r.begin == r.end) continue;
    runs.push_back({r.begin, r.end, r.first, tiles, r.name_hash});
    tiles += blocks_for(r.first % kRun + r.end - r.begin, kTile);
  }
  const TableOwner<Run> owner(op, runs);
  const int64_t blocks = std::min(kBlocksPerMultiprocessor * device_.multiprocessors, tiles);
  launch(round_tiles, Grid(blocks), kThreads, 0, op,
         RoundedShard{.x = reinterpret_cast<const uint32_t*>(args.x.data_as<float>()),
                      .out = reinterpret_cast<uint16_t*>(args.out.data_as<BFloat16>()),
                      .runs = owner.table(),
                      .tiles = tiles,
                      .stream = RoundingStream(args.seed, args.update),
                      .aligned = aligned_to_16({args.x.data(), args.out.data()})});
}

}  // namespace fsdp::cuda
