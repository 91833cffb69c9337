// fsdp bench init: how long a sharded model takes to get its initial values, what memory that
// takes, and a hash of them. Read next: tools/bench/bench_init.h. Not here: measuring.
#include "tools/bench/bench_init.h"

#include <cstdio>

#include "core/io/json.h"
#include "tools/checkpoint/manifest.h"
#include "tools/commands/bench.h"
#include "tools/config/config.h"

namespace fsdp::tools {
namespace {

struct InitCommandOptions {
  LaunchOptions launch;
  std::string preset = "pythia-1b";
  std::string dtype = "f32";
  std::string strategy = "full_shard";
  InitBenchOptions bench;
  int64_t seed = 0;
  bool json = false;
};

void print_text(const InitCommandOptions& options, const RankContext& rank,
                const InitBench& bench) {
  const double whole = static_cast<double>(bench.parameters) *
                       static_cast<double>(size_of(accumulation_dtype(options.bench.dtype)));
  fmt::print(
      "{}, {} parameters, {} on {}, masters in {}\n"
      "set-up         {:>10.3f} s\n"
      "initial values {:>10.3f} s, {:.1f} million a second on each rank\n"
      "peak memory    {:>10.0f} MiB of a rank; the whole model has {:.0f} MiB\n"
      "hash           {}\n",
      options.preset, bench.parameters, options.strategy, ranks_text(rank),
      name_of(accumulation_dtype(options.bench.dtype)), bench.set_up_s, bench.values_s,
      static_cast<double>(bench.parameters) / rank.world.size() / bench.values_s * 1e-6,
      mib(bench.peak_bytes), whole / (1 << 20), hex(bench.hash));
}

void print_json(const InitCommandOptions& options, const RankContext& rank,
                const InitBench& bench) {
  const Json line = {{"model", options.preset},      {"parameters", bench.parameters},
                     {"strategy", options.strategy}, {"dtype", options.dtype},
                     {"ranks", rank.world.size()},   {"threads", rank.threads},
                     {"seed", options.seed},         {"set_up_s", bench.set_up_s},
                     {"values_s", bench.values_s},   {"peak_bytes", bench.peak_bytes},
                     {"hash", hex(bench.hash)}};
  fmt::print("{}\n", line.dump());
}

int run_bench_init(const InitCommandOptions& given, RankContext& rank) {
  InitCommandOptions options = given;
  print_backend_note(rank);
  agree(rank.world, [&] {
    options.bench.model = models::preset(options.preset);
    options.bench.dtype = parse_dtype(options.dtype);
    options.bench.strategy = config::parse_strategy(options.strategy);
    options.bench.seed = static_cast<uint64_t>(options.seed);
  });
  const InitBench bench = bench_init(options.bench, rank);
  if (rank.world.rank() != 0) return 0;
  (options.json ? print_json : print_text)(options, rank, bench);
  std::fflush(stdout);
  return 0;
}

}  // namespace

void add_bench_init(const Command& bench) {
  const auto options = std::make_shared<InitCommandOptions>();
  const Command command = bench.add_command("init");
  command.add({{"--preset", &options->preset},
               {"--dtype", &options->dtype},
               {"--strategy", &options->strategy},
               {"--seed", &options->seed},
               {"--json", &options->json}});
  add_launch_options(command, options->launch);
  runs_on_ranks(command, options, run_bench_init);
}

}  // namespace fsdp::tools
