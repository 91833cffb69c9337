// fsdp bench sharding: training steps under every strategy, schedule, kind of recompute or offload,
// or order of sums, side by side. Read next: tools/bench/bench_sharding.h. Not here: measuring.
#include "tools/bench/bench_sharding.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "core/io/json.h"
#include "tools/commands/bench.h"
#include "tools/report/communication_overlap.h"

namespace fsdp::tools {
namespace {

struct ShardingOptions : BenchOptions {
  std::string vary = "strategy";
};

// Milliseconds in which a collective ran and no kernel; the least of the traced steps.
double exposed_ms(const StepBench& bench) {
  double least = std::numeric_limits<double>::infinity();
  for (const std::vector<TraceEvent>& events : bench.traces) {
    least = std::min(least, static_cast<double>(measure_overlap(events).exposed_ns) * 1e-6);
  }
  return least;
}

// ---------------------------------------------------------------------------- Printing

// Where rows differ by where memory lies, each place stands beside its prediction.
bool shows_places(const ShardingOptions& options) {
  return options.vary == "offload" || options.vary == "memory";
}

void print_head(const ShardingOptions& options, const RankContext& rank) {
  fmt::print("{} {}, {} x {} tokens{}, {}: fastest of {} steps\n", options.preset, options.dtype,
             options.step.batch, options.step.length, micro_steps_text(options.step),
             ranks_text(rank), options.step.steps);
  if (shows_places(options)) {
    fmt::print("{:<20}{:>10}{:>11}{:>14}",
               options.vary == "memory" ? "recompute, offload" : "offload", "ms", "predicted",
               "practicality");
    for (const char* place : {"device MiB", "host MiB", "disk MiB"}) {
      fmt::print("{:>12}{:>11}", place, "predicted");
    }
    fmt::print("\n");
  } else {
    fmt::print("{:<20}{:>10}{:>11}{:>11}{:>12}{:>13}{:>14}\n", options.vary, "ms", "tokens/s",
               "of first", "exposed ms", "peak MiB", "activations");
  }
  std::fflush(stdout);
}

void print_places(const ShardingSetting& setting, const StepBench& bench, double base_ms) {
  const double ms = bench.fastest_ms();
  fmt::print("{:<20}{:>10.1f}{:>11}{:>14.2f}", setting.name, ms,
             bench.predicted ? fmt::format("{:.1f}", bench.predicted->least_ms) : "-",
             base_ms / ms);
  const PlacePeaks &counted = bench.places, &predicted = bench.predicted_places;
  for (const auto& [measured, expected] :
       {std::pair{counted.device, predicted.device}, std::pair{counted.host, predicted.host},
        std::pair{counted.file, predicted.file}}) {
    fmt::print("{:>12.1f}{:>11.1f}", mib(measured), mib(expected));
  }
  fmt::print("\n");
}

void print_setting(const ShardingSetting& setting, const ShardingOptions& options,
                   const StepBench& bench, double base_ms) {
  using enum MemoryCategory;
  const double ms = bench.fastest_ms();
  const double tokens = bench.tokens_per_s(options.step);
  const size_t activations = bench.memory.peak[static_cast<size_t>(kActivation)];
  if (options.json) {
    Json line = {{"setting", setting.name},
                 {"ms_min", ms},
                 {"tokens_per_s", tokens},
                 {"exposed_ms", exposed_ms(bench)},
                 {"peak_bytes", bench.memory.total_peak},
                 {"activation_peak_bytes", activations}};
    if (shows_places(options)) {
      line.update({{"practicality", base_ms / ms},
                   {"peak_bytes_by_place", json_of(bench.places)},
                   {"predicted_peak_bytes_by_place", json_of(bench.predicted_places)}});
    }
    if (bench.predicted) line["predicted_ms_least"] = bench.predicted->least_ms;
    fmt::print("{}\n", line.dump());
    return;
  }
  if (shows_places(options)) return print_places(setting, bench, base_ms);
  fmt::print("{:<20}{:>10.1f}{:>11.0f}{:>9.1f} %{:>12.1f}{:>13.0f}{:>14.0f}\n", setting.name, ms,
             tokens, 100 * base_ms / ms, exposed_ms(bench), mib(bench.memory.total_peak),
             mib(activations));
}

int run_bench_sharding(const ShardingOptions& given, RankContext& rank) {
  ShardingOptions options = given;
  print_backend_note(rank);
  resolve(options, rank);
  options.step.traced_steps = 1;
  options.step.speed_of_light = false;
  const bool speaks = rank.world.rank() == 0;
  if (speaks && !options.json) print_head(options, rank);
  const std::vector<ShardingSetting> settings = sharding_settings(options.vary, rank.world.size());
  const std::vector<StepBench> benches = bench_in_turns(settings, options.step, rank);
  if (!speaks) return 0;
  for (size_t i = 0; i < settings.size(); ++i) {
    print_setting(settings[i], options, benches[i], benches[settings[i].base].fastest_ms());
  }
  std::fflush(stdout);
  return 0;
}

}  // namespace

void add_bench_sharding(const Command& bench) {
  const auto options = std::make_shared<ShardingOptions>();
  const Command command = bench.add_command("sharding");
  add_bench_options(command, *options);
  command.add({{"--vary", &options->vary}});
  runs_on_ranks(command, options, run_bench_sharding);
}

}  // namespace fsdp::tools
