// fsdp bench comm: collectives over the ranks of a job, their bandwidth and their data; a gate for
// scripts that start jobs only where communication works. Here: the options.
// Read next: bench_comm_run.cpp. Not here: measuring (tools/bench/comm_bench.h).
#include "tools/commands/bench_comm.h"

#include <functional>

#include "tools/bench/comm_gate.h"
#include "tools/commands/bench.h"
#include "tools/commands/listed_flags.h"

namespace fsdp::tools {
namespace {

// The options, and how a suite's defaults take the place of what was not given.
using UseSuite = std::vector<std::function<void()>>;

UseSuite add_case_options(const Command& command, CommOptions& options) {
  CommCases& cases = options.cases;
  UseSuite use;
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* help,
                        std::vector<std::string> known) {
    return command.add_option(name, values, help).delimiter(',').one_of(known);
  };
  list("--collectives", cases.collectives,
       "some of all_gather, reduce_scatter, all_reduce, broadcast (default: all)",
       {"all_gather", "reduce_scatter", "all_reduce", "broadcast"});
  list("--ops", cases.ops, "of reductions: sum, average, max (default: sum)",
       {"sum", "average", "max"});
  const Option dtypes = list("--dtypes", cases.dtypes,
                             "f32, bf16, f16, f64, i32, i64 (default: f32,bf16; of a suite f32)",
                             {"f32", "bf16", "f16", "f64", "i32", "i64"});
  list(
      "--buffers", cases.buffers,
      "communicator: memory that ranks of a host reach directly, as the sharding layer uses; plain "
      "(default: communicator)",
      {"communicator", "plain"});
  const auto in_suite = [&](const Option& option, auto& value, auto of_suite) {
    use.push_back([option, &value, of_suite] {
      if (option.count() == 0) value = of_suite;
    });
  };
  const auto size = [&](const char* name, int64_t& value, const char* help, int64_t of_suite) {
    in_suite(command.add_option(name, value, help).size().from_to(int64_t{1}, int64_t{1} << 40),
             value, of_suite);
  };
  const CommCases suite = suite_cases();
  in_suite(dtypes, cases.dtypes, suite.dtypes);
  size("--min-bytes", cases.least_bytes,
       "smallest full buffer, e.g. 64KiB (default: 64KiB; of a suite 32MiB)", suite.least_bytes);
  size("--max-bytes", cases.most_bytes, "largest full buffer (default: 16MiB; of a suite 1GiB)",
       suite.most_bytes);
  const auto number = [&](const char* name, int64_t& value, const char* help, int64_t least,
                          int64_t most, int64_t of_suite) {
    in_suite(command.add_option(name, value, help).from_to(least, most), value, of_suite);
  };
  number("--factor", cases.factor, "factor between sizes (default: 4; of a suite 2)", 2,
         int64_t{1} << 20, suite.factor);
  number("--rounds", options.timing.rounds, "timed rounds (default: 5; of a suite 3)", 1, 100000,
         suite_timing().rounds);
  number("--calls", options.timing.calls, "calls in each round (default: 4; of a suite 1)", 1,
         100000, suite_timing().calls);
  return use;
}

// What is compared over time, or between pairs. Returns the option of pairs.
Option add_record_options(const Command& command, CommOptions& options) {
  const Option file =
      command
          .add_option("--gate", options.gate_file,
                      "hold each collective to its record in this file of --update: status 46 and "
                      "the slow pairs when one falls short, 44 without its record")
          .path()
          .check(not_empty);
  const Option update =
      command
          .add_flag("--update", options.update,
                    "record what is measured in the file of --gate instead; other cases stay")
          .needs(file);
  command
      .add_option("--gate-share", options.gate_share,
                  "of the recorded bandwidth that is enough (default: 0.8)")
      .from_to(0.01, 1.0)
      .needs(file)
      .excludes(update);
  return command
      .add_flag("--pairs", options.pairs,
                "instead: each pair of hosts and of ranks by itself, the first collective of the "
                "largest size; status 46 when one is far below the median, or below --min-busbw")
      .excludes(file);
}

// Returns the option of the bar, whose number may be missing.
Option add_gate_options(const Command& command, CommOptions& options) {
  command.add_option("--expect-ranks", options.gate.expected_ranks, "status 44 on any other number")
      .from_to(1, 1 << 20);
  return command
      .add_option("--min-busbw", options.gate.least_gb_per_s,
                  "GB/s: status 46 when the mean busbw is lower (5 when no number follows)")
      .expected(0, 1)
      .check(not_below_zero);
}

}  // namespace

void add_bench_comm(const Command& bench, ChosenCommand& chosen) {
  const auto options = std::make_shared<CommOptions>();
  const Command command = bench.add_command(
      "comm",
      "collectives: algbw and busbw as nccl-tests define them, and whether the data is right; "
      "status 44: one rank alone, not the expected ranks, or wrong data, no record; 46: too slow");
  command
      .add_option("--transport", options->transport,
                  "nccl (where each rank has a GPU), threads (--local-ranks), shared (memory "
                  "between processes of a host), mpi; auto: the first of these that the ranks "
                  "can use")
      .one_of({"auto", "nccl", "threads", "shared", "mpi"});
  const UseSuite use_suite = add_case_options(command, *options);
  const Option suite =
      command
          .add_option("--suite", options->suite,
                      "a new folder for the results of every collective from 32 MiB to 1 GiB, "
                      "doubling: meta.txt, results.csv, summary.txt")
          .path();
  const Option bar = add_gate_options(command, *options);
  const Option rates =
      command
          .add_option("--update-rates", options->update_rates,
                      "set the link between these ranks in this file of rates, which explain "
                      "--save-rates made")
          .path();
  add_record_options(command, *options).excludes(suite).excludes(rates);
  command.add_flag("--json", options->json, "print JSON, one line per row");
  add_rank_options(command, options->launch);
  add_listed_flags(command, {FlagOf::kComputing, FlagOf::kCollectives}, options->launch);
  command.when_chosen([&chosen, options, bar, use_suite] {
    if (!options->suite.empty()) {
      for (const auto& use : use_suite) use();
    }
    if (bar.count() > 0 && bar.text().empty()) options->gate.least_gb_per_s = kUsualBar;
    chosen = [options] {
      const std::string& transport = options->transport;
      options->launch.shared_memory = transport != "mpi";
      const bool gpus_own = transport == "auto" || transport == "nccl";
      options->launch.gpu_transport = gpus_own ? transport : "host";
      return launch(options->launch,
                    [&](RankContext& rank) { return run_bench_comm(*options, rank); });
    };
  });
}

}  // namespace fsdp::tools
