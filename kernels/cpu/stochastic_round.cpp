// The master of a flat shard in bf16, rounded up or down by chance: the same bits as on a GPU.
#include "core/tensor.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 15;  // elements that one thread takes at a time
constexpr int64_t kBlock = 8;                 // elements that share the words of a Philox block
constexpr int64_t kBlocks = 128;              // whose draws lie in memory together

// out[i] = x[i] rounded, for i < n; element `first` of its parameter is x[0].
void round_run(RoundingStream stream, uint64_t name_hash, uint64_t first, const float* x,
               BFloat16* out, int64_t n) {
  uint32_t draws[kBlocks * kBlock];
  for (int64_t done = 0; done < n;) {
    const uint64_t element = first + static_cast<uint64_t>(done);
    const auto skipped = static_cast<int64_t>(element % kBlock);
    const uint64_t block = element / kBlock;
    const int64_t count = std::min(kBlocks * kBlock - skipped, n - done);
#pragma GCC ivdep
    for (int64_t b = 0; b < (skipped + count + kBlock - 1) / kBlock; ++b) {
      const Philox4x32 words = stream.words(name_hash, block + static_cast<uint64_t>(b));
      for (uint32_t i = 0; i < kBlock; ++i) draws[b * kBlock + i] = RoundingStream::draw(words, i);
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      out[done + i].bits =
          rounded_by_chance(std::bit_cast<uint32_t>(x[done + i]), draws[skipped + i]);
    }
    done += count;
  }
}

struct RoundedShard {
  const float* x;
  BFloat16* out;
  std::vector<ParameterRun> runs;  // by begin
  RoundingStream stream;
  int64_t n;

  void operator()(Worker& worker) const {
    worker.team.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      auto run = std::partition_point(runs.begin(), runs.end(),
                                      [&](const ParameterRun& r) { return r.end <= begin; });
      for (; run != runs.end() && run->begin < end; ++run) {
        const int64_t from = std::max(begin, run->begin), to = std::min(end, run->end);
        const auto first = static_cast<uint64_t>(run->first + from - run->begin);
        const uint64_t name_hash = run->name_hash;
        wide_loop(
            [&](auto) { round_run(stream, name_hash, first, x + from, out + from, to - from); });
      }
    });
  }
};

}  // namespace

void CpuBackend::compute(Stream& stream, const StochasticRoundArgs& args) {
  RoundedShard shard = {.x = args.x.data_as<float>(),
                        .out = args.out.data_as<BFloat16>(),
                        .runs = args.runs,
                        .stream = RoundingStream(args.seed, args.update),
                        .n = args.x.numel()};
  std::erase_if(shard.runs, [](const ParameterRun& r) { return r.begin == r.end; });
  std::sort(shard.runs.begin(), shard.runs.end(),
            [](const ParameterRun& a, const ParameterRun& b) { return a.begin < b.begin; });
  enqueue(stream, "round_stochastically", 0, std::move(shard));
}

}  // namespace fsdp::cpu
