// fsdp bench step: a training step on random tokens, beside the speed of light of the same run.
// Read next: tools/bench/bench_step.h. Not here: such steps side by side (bench_sharding.cpp).
#include "tools/commands/bench.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "core/io/json.h"
#include "core/text/counted.h"
#include "tools/bench/bench_step.h"
#include "tools/commands/commands.h"
#include "tools/config/config.h"

namespace fsdp::tools {
namespace {

struct StepCommandOptions : BenchOptions {
  std::string strategy = "full_shard";
  std::string recompute = "none";
  std::string offload = "none";
  bool kernels = false;
};

// ---------------------------------------------------------------------------- Output

void print_kernels(const KernelTotals& totals) {
  fmt::print("\n{:<10}{:<24}{:>6}{:>12}{:>16}{:>14}\n", "stream", "kernel", "calls", "ms",
             "G(FLOP|B)/s", "predicted ms");
  std::map<std::string, double> lanes;
  for (const auto& [key, total] : totals) {
    const double rate = total.work / (total.ms * 1e6);
    fmt::print("{:<10}{:<24}{:>6}{:>12.2f}{:>16}{:>14}\n", key.first, key.second, total.calls,
               total.ms, total.work > 0 ? fmt::format("{:.1f}", rate) : "",
               total.predicted_ms ? fmt::format("{:.2f}", *total.predicted_ms) : "");
    lanes[key.first] += total.ms;
  }
  for (const auto& [lane, ms] : lanes) {
    fmt::print("{:<10}{:<24}{:>6}{:>12.2f}\n", lane, "all", "", ms);
  }
}

void print_predicted(const StepBench& bench) {
  const StepBench::Predicted& p = *bench.predicted;
  const auto row = [](const char* name, double predicted, double measured) {
    fmt::print("predicted {:>9.1f} ms from the {} time of each call: {:+.1f} % of the {} step\n",
               predicted, name, 100 * (predicted / measured - 1), name);
  };
  row("least", p.least_ms, bench.fastest_ms());
  row("median", p.median_ms, bench.median_ms());
  fmt::print("  {} distinct calls measured between the steps, {} estimated\n", p.calls.measured,
             p.calls.estimated);
}

void print_places(const StepBench& bench) {
  const PlacePeaks &counted = bench.places, &predicted = bench.predicted_places;
  fmt::print(
      "MiB by ledger, predicted: device {:.1f}, {:.1f}   host {:.1f}, {:.1f}   disk {:.1f}, "
      "{:.1f}\n",
      mib(counted.device), mib(predicted.device), mib(counted.host), mib(predicted.host),
      mib(counted.file), mib(predicted.file));
}

void print_text(const StepCommandOptions& options, const RankContext& rank, const StepBench& bench,
                const StepCost& cost) {
  const StepFigures f = figures_of(bench, options.step);
  fmt::print("{} {}, {} x {} tokens{}, {}{}: {} steps\n", options.preset, options.dtype,
             options.step.batch, options.step.length, micro_steps_text(options.step),
             ranks_text(rank), rank.world.size() == 1 ? "" : ", " + options.strategy,
             bench.step_ms.size());
  const auto row = [](const char* name, double step, const SpeedOfLight& light, double percent) {
    fmt::print(
        "{:<9}{:>9.1f} ms   speed of light {:>8.1f} ms = {:.1f} products ({:.0f} GFLOP/s) + "
        "{:.1f} passes ({:.1f} GB/s)   {:.1f} %\n",
        name, step, light.step_ms(), light.product_ms(), light.flops_per_s * 1e-9, light.pass_ms(),
        light.copy_bytes_per_s * 1e-9, percent);
  };
  row("fastest", f.fastest_ms, f.light, f.percent);
  row("median", f.median_ms, f.median_light, f.median_percent);
  if (f.light.peak_flops_per_s > 0) {
    fmt::print(
        "{:<9}{:>9.0f} GFLOP/s of multiply-adds in registers: the fastest step's products are "
        "{:.1f} % of that\n",
        "peak", f.light.peak_flops_per_s * 1e-9, f.light.percent_of_peak(f.fastest_ms));
  }
  fmt::print(
      "{:.0f} tokens/s (fastest)   peak memory {:.0f} MiB by ledger, {:.0f} MiB growth of RSS   "
      "loss {:.4f}\n",
      f.tokens_per_s, mib(bench.process_ledger_peak), mib(bench.resident_growth),
      bench.values.loss);
  if (options.offload != "none") print_places(bench);
  if (bench.predicted) print_predicted(bench);
  if (options.kernels) print_kernels(kernel_totals(bench, cost));
}

Json json_of(const KernelTotals& totals) {
  Json out = Json::array();
  for (const auto& [key, total] : totals) {
    out.push_back({{"stream", key.first},
                   {"kernel", key.second},
                   {"calls", total.calls},
                   {"ms", total.ms},
                   {"work", total.work}});
    if (total.predicted_ms) out.back()["predicted_ms"] = *total.predicted_ms;
  }
  return out;
}

void print_json(const StepCommandOptions& options, const RankContext& rank, const StepBench& bench,
                const StepCost& cost) {
  const StepFigures f = figures_of(bench, options.step);
  Json peaks = Json::object(), at_peak = Json::object();
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const std::string category(name_of(static_cast<MemoryCategory>(i)));
    peaks[category] = bench.memory.peak[i];
    at_peak[category] = bench.memory.at_peak[i];
  }
  Json out = {{"model", options.preset},
              {"parameters", options.step.model.parameter_count()},
              {"dtype", options.dtype},
              {"batch", options.step.batch},
              {"batch_per_rank", options.step.batch / rank.world.size()},
              {"seq", options.step.length},
              {"micro_steps", options.step.fsdp.micro_steps},
              {"world", rank.world.size()},
              {"strategy", rank.world.size() == 1 ? "single" : options.strategy},
              {"threads", rank.threads},
              {"steps", bench.step_ms.size()},
              {"ms_min", f.fastest_ms},
              {"ms_median", f.median_ms},
              {"tokens_per_s", f.tokens_per_s},
              {"speed_of_light_ms", f.light.step_ms()},
              {"percent_of_speed_of_light", f.percent},
              {"speed_of_light_ms_median", f.median_light.step_ms()},
              {"percent_of_speed_of_light_median", f.median_percent},
              {"product_flops", f.light.flops},
              {"product_flops_per_s", f.light.flops_per_s},
              {"pass_bytes", f.light.pass_bytes},
              {"peak_flops_per_s", f.light.peak_flops_per_s},
              {"percent_of_peak", f.light.percent_of_peak(f.fastest_ms)},
              {"copy_bytes_per_s", f.light.copy_bytes_per_s},
              {"peak_bytes", bench.memory.total_peak},
              {"peak_bytes_by_category", peaks},
              {"bytes_by_category_at_total_peak", at_peak},
              {"offload", options.offload},
              {"peak_bytes_by_place", json_of(bench.places)},
              {"predicted_peak_bytes_by_place", json_of(bench.predicted_places)},
              {"process_peak_bytes", bench.process_ledger_peak},
              {"first_step_s", bench.first_step_s},
              {"rss_growth_bytes", bench.resident_growth},
              {"loss", bench.values.loss},
              {"grad_norm", bench.values.grad_norm}};
  if (rank.backend.cuda) {
    const cuda::FreeMemory memory = cuda::free_memory(rank.backend.cuda->device);
    out["pool_peak_bytes"] = memory.pool_peak;
    out["pool_used_peak_bytes"] = memory.pool_used_peak;
  }
  if (bench.predicted) {
    out["predicted_ms_least"] = bench.predicted->least_ms;
    out["predicted_ms_median"] = bench.predicted->median_ms;
  }
  if (options.kernels) out["kernels"] = json_of(kernel_totals(bench, cost));
  fmt::print("{}\n", out.dump());
}

// As each long step ends, so that a run that is cut leaves its times.
void print_progress(int64_t step, int64_t steps, double ms) {
  if (ms < 1000) return;
  const std::string name = step > 0 ? fmt::format("step {} of {}", step, steps) : "warm-up";
  fmt::print(stderr, "{}: {:.2f} s\n", name, ms * 1e-3);
}

comm::Offload offload_named(const std::string& name) {
  return *std::find_if(comm::kOffloads.begin(), comm::kOffloads.end(),
                       [&](comm::Offload offload) { return choice_name(offload) == name; });
}

int run_bench_step(const StepCommandOptions& given, RankContext& rank) {
  StepCommandOptions options = given;
  print_backend_note(rank);
  resolve(options, rank);
  options.step.traced_steps = options.kernels ? 3 : 0;
  options.step.fsdp.strategy = config::parse_strategy(options.strategy);
  options.step.recompute = options.recompute == "full"        ? RecomputeMode::kFull
                           : options.recompute == "offload"   ? RecomputeMode::kOffload
                           : options.recompute == "selective" ? RecomputeMode::kSelective
                                                              : RecomputeMode::kNone;
  options.step.fsdp.offload = offload_named(options.offload);
  options.step.step_ended = [&](int64_t step, double ms) {
    print_progress(step, options.step.steps, ms);
  };
  const StepBench bench = bench_step(options.step, rank);
  if (rank.world.rank() != 0) return 0;
  const StepCost cost = step_cost(options.step, rank.world.size());
  (options.json ? print_json : print_text)(options, rank, bench, cost);
  std::fflush(stdout);
  return 0;
}

// ---------------------------------------------------------------------------- Commands

std::vector<std::string> offload_names() {
  std::vector<std::string> names;
  for (const comm::Offload offload : comm::kOffloads) names.emplace_back(choice_name(offload));
  return names;
}

void add_bench_step(const Command& bench) {
  const auto options = std::make_shared<StepCommandOptions>();
  const Command command = bench.add_command("step");
  add_bench_options(command, *options);
  command.add(
      {{.name = "--strategy", .target = &options->strategy, .one_of = config::strategy_names()},
       {"--shard-size", &options->step.fsdp.shard_size},
       {"--recompute", &options->recompute},
       {.name = "--offload", .target = &options->offload, .one_of = offload_names()},
       {"--kernels", &options->kernels}});
  runs_on_ranks(command, options, run_bench_step);
}

}  // namespace

Json json_of(const PlacePeaks& peaks) {
  return {{"device", peaks.device}, {"host", peaks.host}, {"disk", peaks.file}};
}

std::string micro_steps_text(const StepBenchOptions& step) {
  const int n = step.fsdp.micro_steps;
  return n == 1 ? "" : fmt::format(" in {} micro-steps", n);
}

std::string ranks_text(const RankContext& rank) {
  return counted(rank.world.size(), "rank") + " x " + counted(rank.threads, "thread");
}

void resolve(BenchOptions& options, RankContext& rank) {
  agree(rank.world, [&] {
    options.step.model = models::preset(options.preset);
    options.step.dtype = parse_dtype(options.dtype);
    check(options.step, rank.world.size());
  });
  rank.backend.offload_folder = options.offload_folder;
}

void add_bench_options(const Command& command, BenchOptions& options) {
  command.add("@bench", {{"--preset", &options.preset},
                         {"--batch", &options.step.batch},
                         {"--seq", &options.step.length},
                         {"--accumulate", &options.step.fsdp.micro_steps},
                         {"--update-in-backward", &options.step.fsdp.update_in_backward},
                         {"--dtype", &options.dtype},
                         {"--warm-up", &options.step.warm_up},
                         {"--steps", &options.step.steps},
                         {"--offload-folder", &options.offload_folder},
                         {"--predict", &options.step.predict},
                         {"--json", &options.json}});
  add_launch_options(command, options.launch);
}

void add_bench_command(const Command& app) {
  const Command bench = app.add_command("bench");
  bench.require_command();
  for (AddCommand* const add : {&add_bench_step, &add_bench_init, &add_bench_sharding,
                                &add_bench_kernels, &add_bench_comm}) {
    add(bench);
  }
}

}  // namespace fsdp::tools
