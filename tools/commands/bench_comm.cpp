// fsdp bench comm: collectives over the ranks of a job, their bandwidth and their data; a gate for
// scripts that start jobs only where communication works.
// Read next: tools/bench/comm_bench.h. Not here: measuring.
#include <cstdio>
#include <ctime>
#include <functional>

#include <fmt/chrono.h>

#include "core/io/json.h"
#include "tools/bench/comm_bench.h"
#include "tools/bench/comm_gate.h"
#include "tools/bench/comm_suite.h"
#include "tools/bench/link_rate.h"
#include "tools/commands/bench.h"
#include "tools/commands/listed_flags.h"
#include "tools/launch/backend_choice.h"
#include "tools/predict/rates_file.h"
#include "tools/report/device_snapshot.h"
#include "tools/report/source_commit.h"

namespace fsdp::tools {
namespace {

struct CommOptions {
  LaunchOptions launch;
  std::string transport = "auto";
  CommCases cases;
  CommTiming timing;
  CommGate gate;
  std::string update_rates;  // "": no file
  std::string suite;         // folder; "": none
  bool json = false;
};

void print_head(const CommOptions& options, const RankContext& rank, const Backend& backend,
                const std::string& transport) {
  if (options.json) return;
  fmt::print(
      "{} ranks, {}, memory of {}; {} x {} calls; median of a call on the slowest rank\n"
      "{:<16}{:>9}{:>7}{:>13}{:>14}{:>12}{:>9}{:>14}{:>14}{:>8}\n",
      rank.world.size(), transport, backend.name(), options.timing.rounds, options.timing.calls,
      "collective", "op", "dtype", "buffer", "bytes", "us", "spread", "algbw GB/s", "busbw GB/s",
      "wrong");
}

void print_result(const CommOptions& options, const std::string& transport,
                  const CommResult& result) {
  const CommCase& what = result.what;
  const std::string_view op = op_name(what);
  const std::string_view buffer = what.registered ? "communicator" : "plain";
  if (options.json) {
    const Json line = {{"collective", comm::name_of(what.collective)},
                       {"op", op},
                       {"dtype", name_of(what.dtype)},
                       {"buffer", buffer},
                       {"transport", transport},
                       {"ranks", result.ranks},
                       {"bytes", what.bytes},
                       {"us_least", result.seconds.least * 1e6},
                       {"us_median", result.seconds.median * 1e6},
                       {"us_upper_quartile", result.seconds.upper_quartile * 1e6},
                       {"algbw_gb_per_s", result.algbw() * 1e-9},
                       {"busbw_gb_per_s", result.busbw() * 1e-9},
                       {"wrong", result.wrong}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:<16}{:>9}{:>7}{:>13}{:>14}{:>12.1f}{:>7.0f} %{:>14.3f}{:>14.3f}{:>8}\n",
               comm::name_of(what.collective), op, name_of(what.dtype), buffer, what.bytes,
               result.seconds.median * 1e6, result.seconds.percent(), result.algbw() * 1e-9,
               result.busbw() * 1e-9, result.wrong);
  }
  std::fflush(stdout);
}

void update_rates(const CommOptions& options, Rates rates, const std::vector<CommResult>& results,
                  comm::Communicator& world) {
  const std::vector<std::string> hosts = world.exchange(host_name());
  std::string key;
  agree(world, [&] {
    key = set_link(rates, fit_link(results), hosts);
    if (world.rank() == 0) write_rates(options.update_rates, rates);
  });
  if (world.rank() != 0 || options.json) return;
  const LinkRate& set = key == "inside_node" ? rates.inside_node : rates.between_nodes;
  fmt::print("{}: {}: latency {:.1f} us, {:.3f} GB/s\n", options.update_rates, key, set.latency_us,
             set.bytes_per_s * 1e-9);
}

std::string utc_time() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// On rank 0, which is where the files are written; null on the others. Collective.
std::unique_ptr<CommSuite> make_suite(const CommOptions& options, RankContext& rank,
                                      const Backend& backend, const std::string& transport) {
  if (options.suite.empty()) return nullptr;
  const std::string device = rank.backend.cuda ? gpu_name(rank.backend.cuda->device) : cpu_name();
  const SuiteMeta meta = {
      .date = utc_time(),
      .commit = source_commit(),
      .machines = rank.world.exchange(fmt::format("{}, {}", host_name(), device)),
      .transport = transport,
      .memory = std::string(backend.name()),
      .threads = rank.threads,
      .timing = options.timing};
  std::unique_ptr<CommSuite> suite;
  agree(rank.world, [&] {
    if (rank.world.rank() == 0) suite = std::make_unique<CommSuite>(options.suite, meta);
  });
  return suite;
}

int run_bench_comm(const CommOptions& options, RankContext& rank) {
  const bool speaks = rank.world.rank() == 0;
  const auto finish = [&](const GateVerdict& verdict) {
    if (speaks && verdict.status != 0) report_error("bench comm: " + verdict.reason);
    return verdict.status;
  };
  const GateVerdict start = check_ranks(options.gate, rank.world.size());
  if (start.status != 0) return finish(start);
  const std::vector<CommCase> cases = expand(options.cases);
  print_backend_note(rank);
  Rates rates;
  agree(rank.world, [&] {
    if (!options.update_rates.empty()) rates = read_rates(options.update_rates);
  });
  const auto backend = make_backend(rank.backend, DType::kF32);
  const auto gpu_world = make_gpu_world(rank.world, rank.backend, *backend);
  const std::string transport =
      gpu_world ? "nccl" : check_transport(rank, options.launch, options.transport);
  const std::unique_ptr<CommSuite> suite = make_suite(options, rank, *backend, transport);
  if (speaks) print_head(options, rank, *backend, transport);
  const std::vector<CommResult> results =
      bench_collectives(gpu_world ? *gpu_world : rank.world, *backend, cases, options.timing,
                        [&](const CommResult& result) {
                          if (speaks) print_result(options, transport, result);
                          if (suite) suite->add(result);
                        });
  const GateVerdict verdict = check_results(options.gate, results);
  if (suite) suite->finish(verdict);
  if (speaks && !options.json) {
    fmt::print("mean busbw {:.3f} GB/s\n", mean_busbw(results) * 1e-9);
    std::fflush(stdout);
  }
  const bool right = verdict.status == 0 || verdict.status == kTooSlow;
  if (right && !options.update_rates.empty()) update_rates(options, rates, results, rank.world);
  return finish(verdict);
}

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
      "status 44: one rank alone, not the expected ranks, or wrong data; 46: too slow");
  command
      .add_option("--transport", options->transport,
                  "nccl (where each rank has a GPU), threads (--local-ranks), shared (memory "
                  "between processes of a host), mpi; auto: the first of these that the ranks "
                  "can use")
      .one_of({"auto", "nccl", "threads", "shared", "mpi"});
  const UseSuite use_suite = add_case_options(command, *options);
  command
      .add_option("--suite", options->suite,
                  "a new folder for the results of every collective from 32 MiB to 1 GiB, "
                  "doubling: meta.txt, results.csv, summary.txt")
      .path();
  const Option bar = add_gate_options(command, *options);
  command
      .add_option("--update-rates", options->update_rates,
                  "set the link between these ranks in this file of rates, which explain "
                  "--save-rates made")
      .path();
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
