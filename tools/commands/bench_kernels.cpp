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

// 1: a kernel has become slower. The comparison goes to stderr where stdout has JSON or CSV.
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

void add_bench_kernels(const Command& bench) {
  const auto options = std::make_shared<KernelsOptions>();
  const Command command = bench.add_command("kernels");
  command.add({{"--model", &options->extents.model},
               {"--shape", &options->extents.shape},
               {"--batch", &options->extents.batch},
               {"--seq", &options->extents.length},
               {"--documents", &options->extents.documents},
               {"--dtype", &options->dtype},
               {"--filter", &options->filter},
               {"--seconds", &options->seconds},
               {"--baseline", &options->baseline},
               {"--tolerance", &options->tolerance},
               {"--json", &options->json},
               {"--csv", &options->csv},
               {"--save", &options->save}});
  add_listed_flags(command, {FlagOf::kComputing, FlagOf::kKernels}, options->launch);
  command.when_chosen([options] {
    check_one_process("bench kernels");
    return launch(options->launch,
                  [&](RankContext& rank) { return run_bench_kernels(*options, rank); });
  });
}

}  // namespace fsdp::tools
