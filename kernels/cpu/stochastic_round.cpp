// The master of a flat shard in bf16, rounded up or down by chance: the same bits as on a GPU.
#include "kernels/cpu/stochastic_round.h"

#include "core/shard_args.h"
#include "core/tensor.h"
#include "kernels/cpu/cpu_backend.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 15;  // elements that one thread takes at a time

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
        round_by_chance(stream, run->name_hash, run->first + from - run->begin, x + from,
                        out + from, to - from);
      }
    });
  }
};

}  // namespace

template <>
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
