// fsdp bench kernels: every kernel of the backend by itself, on this machine's CPU or GPU.
// Read next: tools/bench/kernel_bench.h. Not here: measuring, tables.
#include <cstdio>

#include "core/io/file.h"
#include "tools/bench/kernel_report.h"
#include "tools/commands/bench.h"
#include "tools/commands/listed_flags.h"
#include "tools/report/source_commit.h"

namespace fsdp::tools {
namespace {

constexpr double kLongest = 5;  // times --seconds

struct KernelsOptions {
  LaunchOptions launch;
  KernelExtentsOptions extents;
  std::string dtype = "f32";
  std::string filter;
  double seconds = KernelTiming{}.seconds;
  std::string baseline, save;
  double tolerance = 10;  // percent
  bool json = false, csv = false;
};

void print(const KernelsOptions& options, const KernelReport& report) {
  const std::string text = options.json  ? kernels_json(report)
                           : options.csv ? kernels_csv(report)
                                         : format_kernels(report);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// 1: a kernel has become slower. Beside JSON and CSV the comparison goes to stderr.
int compare(const KernelsOptions& options, const KernelReport& report) {
  const BaselineComparison comparison = compare_with_baseline(options.baseline, report);
  std::fputs(format_comparison(comparison, options.tolerance).c_str(),
             options.json || options.csv ? stderr : stdout);
  return comparison.slower(options.tolerance).empty() ? 0 : 1;
}

int run_bench_kernels(KernelsOptions options, RankContext& rank) {
  options.extents.dtype = parse_dtype(options.dtype);
  const KernelExtents extents = kernel_extents(options.extents);
  const std::vector<KernelCase> table = kernel_table(extents, options.filter);
  FSDP_CHECK(!table.empty(), "--filter: no kernel has \"{}\" in its name", options.filter);
  check_products(rank.backend, {options.extents.dtype});
  print_backend_note(rank);
  const auto backend = make_backend(rank.backend, options.extents.dtype);
  KernelReport report;
  report.device = report_device(*backend, rank.backend);
  report.commit = source_commit();
  report.extents = options.extents;
  if (!options.baseline.empty()) check_baseline(options.baseline, report);  // before the work
  report.bench = bench_kernels(*backend, table, options.extents.dtype,
                               {.cache_bytes = report.device.cache_bytes,
                                .seconds = options.seconds,
                                .most_seconds = kLongest * options.seconds});
  report.device = report_device(*backend, rank.backend);  // clocks and power of a busy device
  print(options, report);
  if (!options.save.empty()) write_file_atomically(options.save, kernels_json(report));
  return options.baseline.empty() ? 0 : compare(options, report);
}

}  // namespace

void add_bench_kernels(const Command& bench, ChosenCommand& chosen) {
  const auto options = std::make_shared<KernelsOptions>();
  const Command command = bench.add_command(
      "kernels",
      "every kernel by itself, forward and backward: time, bytes, FLOPs, and how much of a copy's "
      "and a large product's rate it reaches; each call uses different memory from the one before");
  command
      .add_option("--model", options->extents.model,
                  "whose sizes: a folder or a preset (default: gpt2-124m)")
      .path();
  command.add_option("--shape", options->extents.shape,
                     "other sizes than the model's, such as hidden=1024,ffn=4096; also heads, "
                     "kv_heads, head_dim, vocabulary, and elements of the optimizer's shard");
  command.add_option("--batch", options->extents.batch, "sequences (default: 4)")
      .from_to(int64_t{1}, int64_t{1} << 20);
  command.add_option("--seq", options->extents.length, "tokens of a sequence (default: 64)")
      .from_to(int64_t{2}, int64_t{1} << 20);
  command.add_option("--dtype", options->dtype, "dtype to compute in (default: f32)")
      .one_of({"f32", "bf16", "f16", "f64"});
  command.add_option("--filter", options->filter, "only kernels whose name has this in it");
  command
      .add_option("--seconds", options->seconds,
                  "approximate seconds per kernel (default: 0.2); at least seven calls, or as few "
                  "as two if seven would take more than five times as long")
      .from_to(0.001, 1000.0);
  const Option baseline = command.add_option(
      "--baseline", options->baseline,
      "an earlier run's JSON: status 1 when a kernel's fastest call has become slower");
  command
      .add_option("--tolerance", options->tolerance,
                  "slowdown in percent that is tolerated (default: 10)")
      .check(not_below_zero)
      .needs(baseline);
  const Option json = command.add_flag("--json", options->json, "print JSON");
  command.add_flag("--csv", options->csv, "print CSV").excludes(json);
  command.add_option("--save", options->save, "also write JSON there, as --baseline reads it")
      .path()
      .check(not_empty);
  add_listed_flags(command, {FlagOf::kComputing, FlagOf::kKernels}, options->launch);
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      check_one_process("bench kernels");
      return launch(options->launch,
                    [&](RankContext& rank) { return run_bench_kernels(*options, rank); });
    };
  });
}

}  // namespace fsdp::tools
