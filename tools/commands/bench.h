// The commands below `fsdp bench`, and the options that `bench step` and `bench sharding` share.
// Read next: bench.cpp, bench_init.cpp, bench_sharding.cpp, bench_kernels.cpp, bench_comm.cpp.
#pragma once

#include <string>

#include "core/io/json.h"
#include "tools/bench/bench_step.h"
#include "tools/commands/commands.h"

namespace fsdp::tools {

struct BenchOptions {
  LaunchOptions launch;
  std::string preset = "gpt2-124m";
  std::string dtype = "f32";
  StepBenchOptions step;  // model and dtype: see resolve()
  std::string offload_folder = ".";
  bool json = false;
};
void add_bench_options(const Command& command, BenchOptions& options);
Json json_of(const PlacePeaks& peaks);                       // {"device": bytes, ...}
std::string micro_steps_text(const StepBenchOptions& step);  // " in 4 micro-steps", "" of one
std::string ranks_text(const RankContext& rank);             // "2 ranks x 4 threads"
// Sets what is named by text; error on all ranks when that or the batch does not fit. Collective.
void resolve(BenchOptions& options, RankContext& rank);

// Below `bench`.
AddCommand add_bench_init, add_bench_sharding, add_bench_kernels, add_bench_comm;

inline double mib(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace fsdp::tools
