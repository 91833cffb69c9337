// fsdp bench comm: collectives over the ranks of a job, their bandwidth and their data; a gate for
// scripts that start jobs only where communication works. Here: options, the order of things,
// output. Read next: tools/bench/comm_bench.h. Not here: measuring, verdicts (tools/bench).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/text/counted.h"
#include "tools/bench/comm_bench.h"
#include "tools/bench/comm_gate.h"
#include "tools/bench/comm_pairs.h"
#include "tools/bench/gate_records.h"
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
  std::string gate_file;  // "": none
  double gate_share = 0.8;
  bool update = false;       // write gate_file instead of holding results to it
  bool pairs = false;        // instead of collectives of all ranks
  std::string update_rates;  // "": no file
  std::string suite;         // folder; "": none
  bool json = false;
};

std::string utc_time() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

Json json_of(const CommCase& what, const std::string& transport, int ranks) {
  return {{"collective", comm::name_of(what.collective)},
          {"op", op_name(what)},
          {"dtype", name_of(what.dtype)},
          {"buffer", buffer_name(what)},
          {"transport", transport},
          {"ranks", ranks},
          {"bytes", what.bytes}};
}

class CommRun {
 public:
  CommRun(const CommOptions& options, RankContext& rank)
      : options_(options),
        rank_(rank),
        backend_(make_backend(rank.backend, DType::kF32)),
        gpu_world_(make_gpu_world(rank.world, rank.backend, *backend_)),
        world_(gpu_world_ ? *gpu_world_ : rank.world),
        transport_(gpu_world_ ? "nccl" : check_transport(rank, options.launch, options.transport)),
        hosts_(rank.world.exchange(host_name())),
        place_(options.gate_file.empty() ? GatePlace{} : find_place()) {}

  GateVerdict pairs(const std::vector<CommCase>& cases) {
    // The largest size of the first collective.
    CommCase what = cases.front();
    for (const CommCase& other : cases) what.bytes = std::max(what.bytes, other.bytes);
    const std::vector<PairTable> tables = find_slow_pairs(what, options_.gate.least_gb_per_s * 1e9);
    for (const PairTable& table : tables) {
      for (const PairResult& pair : table.pairs) print_pair(table, pair);
    }
    return check_pairs(tables);
  }

  GateVerdict collectives(const std::vector<CommCase>& cases) {
    Rates rates;
    agree(rank_.world, [&] {
      if (!options_.update_rates.empty()) rates = read_rates(options_.update_rates);
    });
    GateRecords records = read_records();
    const bool held = !options_.gate_file.empty() && !options_.update;
    if (held) {
      const GateVerdict known = check_recorded(records, place_, cases, options_.gate_file);
      if (known.status != 0) return known;
    }
    const std::unique_ptr<CommSuite> suite = make_suite();
    print_head();
    const std::vector<CommResult> results =
        bench_collectives(world_, *backend_, cases, options_.timing, [&](const CommResult& result) {
          if (speaks()) print_result(result);
          if (suite) suite->add(result);
        });
    if (speaks() && !options_.json) {
      fmt::print("mean busbw {:.3f} GB/s\n", mean_busbw(results) * 1e-9);
    }
    GateVerdict verdict = check_results(options_.gate, results);
    if (held && verdict.status != kNothingValid) {
      const GateVerdict of_records = hold(results, records);
      if (of_records.status != 0) verdict = of_records;
    }
    if (suite) suite->finish(verdict);
    if (verdict.status != kNothingValid) {
      if (!options_.update_rates.empty()) update_rates(rates, results);
      if (options_.update) update_records(records, results);
    }
    return verdict;
  }

  bool speaks() const { return rank_.world.rank() == 0; }

 private:
  GatePlace find_place() const {
    std::map<std::string, int> ranks;  // by host
    int most = 0;
    for (const std::string& host : hosts_) most = std::max(most, ++ranks[host]);
    const std::vector<std::string> all = rank_.world.exchange(device());
    const std::set<std::string> devices(all.begin(), all.end());
    return {.transport = transport_,
            .memory = std::string(backend_->name()),
            .device = fmt::to_string(fmt::join(devices, ", ")),
            .ranks = world_.size(),
            .hosts = static_cast<int>(ranks.size()),
            .most_on_a_host = most};
  }

  std::string device() const {
    return rank_.backend.cuda ? gpu_name(rank_.backend.cuda->device) : cpu_name();
  }

  // On rank 0, which is where the files are written; null on the others.
  std::unique_ptr<CommSuite> make_suite() {
    if (options_.suite.empty()) return nullptr;
    const SuiteMeta meta = {
        .date = utc_time(),
        .commit = source_commit(),
        .machines = rank_.world.exchange(fmt::format("{}, {}", host_name(), device())),
        .transport = transport_,
        .memory = std::string(backend_->name()),
        .threads = rank_.threads,
        .timing = options_.timing};
    std::unique_ptr<CommSuite> suite;
    agree(rank_.world, [&] {
      if (speaks()) suite = std::make_unique<CommSuite>(options_.suite, meta);
    });
    return suite;
  }

  // ---- the gate's file: rank 0 reads and writes it, so the others need not see it ----

  GateRecords read_records() {
    if (options_.gate_file.empty()) return {};
    std::string text;
    agree(rank_.world, [&] {
      const bool there = speaks() && is_there(options_.gate_file);
      if (!speaks() || (options_.update && !there)) return;
      FSDP_CHECK(there, "{}: no such file; --update creates it", options_.gate_file);
      text = read_file(options_.gate_file);
    });
    text = comm::from_first_rank(rank_.world, text);
    GateRecords records;
    agree(rank_.world, [&] {
      const bool to_be_made = text.empty() && options_.update;
      if (!to_be_made) records = parse_gate_records(text, options_.gate_file);
    });
    return records;
  }

  void update_records(GateRecords& records, const std::vector<CommResult>& results) {
    set_records(records, place_, results);
    agree(rank_.world, [&] {
      if (speaks()) write_file_atomically(options_.gate_file, gate_text(records));
    });
    if (!speaks() || options_.json) return;
    fmt::print("{}: {} cases of {} recorded\n", options_.gate_file, results.size(), records.size());
  }

  GateVerdict hold(const std::vector<CommResult>& results, const GateRecords& records) {
    constexpr std::chrono::seconds kPause{1};
    const std::vector<HeldCase> held = hold_to_records(
        results, records, place_, options_.gate_share, kPause, [&](const CommCase& what) {
          return bench_collective(world_, *backend_, what, options_.timing);
        });
    for (const HeldCase& one : held) print_held(one);
    GateVerdict verdict = check_held(held, options_.gate_file);
    if (verdict.status == 0) say_passed(held);
    if (verdict.status != kTooSlow) return verdict;
    const HeldCase& worst = *worst_of(held);
    const std::vector<PairTable> tables =
        find_slow_pairs(worst.what, options_.gate_share * worst.record.busbw_gb_per_s * 1e9);
    for (const PairTable& table : tables) {
      for (const PairResult& pair : table.pairs) {
        if (!pair.slow.empty()) print_pair(table, pair);
      }
    }
    const std::string slow = slow_pairs_text(tables);
    verdict.reason += slow.empty() ? "; no pair is slow by itself" : "; " + slow;
    return verdict;
  }

  void say_passed(const std::vector<HeldCase>& held) const {
    if (!speaks() || options_.json) return;
    const auto again =
        std::count_if(held.begin(), held.end(), [](const HeldCase& one) { return one.tries > 1; });
    fmt::print("{}: {} cases passed{}\n", options_.gate_file, held.size(),
               again == 0 ? "" : fmt::format(", {} of them at another try", again));
  }

  std::vector<PairTable> find_slow_pairs(const CommCase& what, double least) {
    if (speaks() && !options_.json) {
      fmt::print("each pair by itself, {}, by {}:\n", describe(what), transport_);
      std::fflush(stdout);
    }
    return bench_pairs(world_, *backend_, what, options_.timing, hosts_, least, options_.pairs);
  }

  void update_rates(Rates& rates, const std::vector<CommResult>& results) {
    std::string key;
    agree(rank_.world, [&] {
      key = set_link(rates, fit_link(results), hosts_);
      if (speaks()) write_rates(options_.update_rates, rates);
    });
    if (!speaks() || options_.json) return;
    const LinkRate& set = key == "inside_node" ? rates.inside_node : rates.between_nodes;
    fmt::print("{}: {}: latency {:.1f} us, {:.3f} GB/s\n", options_.update_rates, key,
               set.latency_us, set.bytes_per_s * 1e-9);
  }

  // ---- lines, of rank 0 ----

  void print_head() const {
    if (options_.json || !speaks()) return;
    fmt::print(
        "{}, {}, memory of {}; {} x {} calls; median of a call on the slowest rank\n"
        "{:<16}{:>9}{:>7}{:>13}{:>14}{:>12}{:>9}{:>14}{:>14}{:>8}\n",
        counted(rank_.world.size(), "rank"), transport_, backend_->name(), options_.timing.rounds,
        options_.timing.calls, "collective", "op", "dtype", "buffer", "bytes", "us", "spread",
        "algbw GB/s", "busbw GB/s", "wrong");
  }

  void print_result(const CommResult& result) const {
    const CommCase& what = result.what;
    if (options_.json) {
      Json line = json_of(what, transport_, result.ranks);
      line.update({{"us_least", result.seconds.least * 1e6},
                   {"us_median", result.seconds.median * 1e6},
                   {"us_upper_quartile", result.seconds.upper_quartile * 1e6},
                   {"algbw_gb_per_s", result.algbw() * 1e-9},
                   {"busbw_gb_per_s", result.busbw() * 1e-9},
                   {"wrong", result.wrong}});
      fmt::print("{}\n", line.dump());
    } else {
      fmt::print("{:<16}{:>9}{:>7}{:>13}{:>14}{:>12.1f}{:>7.0f} %{:>14.3f}{:>14.3f}{:>8}\n",
                 comm::name_of(what.collective), op_name(what), name_of(what.dtype),
                 buffer_name(what), what.bytes, result.seconds.median * 1e6,
                 result.seconds.percent(), result.algbw() * 1e-9, result.busbw() * 1e-9,
                 result.wrong);
    }
    std::fflush(stdout);
  }

  void print_held(const HeldCase& held) const {
    if (!options_.json || !speaks()) return;
    Json line = {{"gate", held.shortfall.empty() ? "passed" : "too slow"}};
    line.update(json_of(held.what, transport_, world_.size()));
    line.update({{"hosts", place_.hosts},
                 {"us", held.best.us},
                 {"us_recorded", held.record.us},
                 {"busbw_gb_per_s", held.best.busbw_gb_per_s},
                 {"busbw_gb_per_s_recorded", held.record.busbw_gb_per_s},
                 {"tries", held.tries}});
    fmt::print("{}\n", line.dump());
  }

  void print_pair(const PairTable& table, const PairResult& pair) const {
    if (!speaks()) return;
    const PairSide& first = table.sides[pair.first];
    const PairSide& second = table.sides[pair.second];
    if (options_.json) {
      const Json line = {{"pair", Json::array({Json(first.ranks), Json(second.ranks)})},
                         {"hosts", Json::array({first.host, second.host})},
                         {"busbw_gb_per_s", pair.busbw * 1e-9},
                         {"wrong", pair.wrong},
                         {"slow", pair.slow}};
      fmt::print("{}\n", line.dump());
    } else {
      fmt::print("{:<60}{:>10.4g} GB/s{}{}\n", describe(table, pair), pair.busbw * 1e-9,
                 pair.slow.empty() ? "" : "  ", pair.slow);
    }
  }

  const CommOptions& options_;
  RankContext& rank_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<comm::Communicator> gpu_world_;  // null: the host's ranks communicate
  comm::Communicator& world_;                      // what is measured
  std::string transport_;
  std::vector<std::string> hosts_;  // by rank
  GatePlace place_;                 // where there is a file of a gate
};

int run_bench_comm(const CommOptions& options, RankContext& rank) {
  GateVerdict verdict = check_ranks(options.gate, rank.world.size());
  if (verdict.status == 0) {
    const std::vector<CommCase> cases = expand(options.cases);
    print_backend_note(rank);
    CommRun run(options, rank);
    verdict = options.pairs ? run.pairs(cases) : run.collectives(cases);
    std::fflush(stdout);
  }
  if (rank.world.rank() == 0 && verdict.status != 0) report_error("bench comm: " + verdict.reason);
  return verdict.status;
}

// A suite's defaults take the place of what was not given.
void use_suite(const Command& command, CommOptions& options) {
  const CommCases cases = suite_cases();
  const CommTiming timing = suite_timing();
  const auto use = [&](const char* name, auto& value, const auto& of_suite) {
    if (command.given(name) == 0) value = of_suite;
  };
  use("--dtypes", options.cases.dtypes, cases.dtypes);
  use("--min-bytes", options.cases.least_bytes, cases.least_bytes);
  use("--max-bytes", options.cases.most_bytes, cases.most_bytes);
  use("--factor", options.cases.factor, cases.factor);
  use("--rounds", options.timing.rounds, timing.rounds);
  use("--calls", options.timing.calls, timing.calls);
}

void use_launch_options(CommOptions& options) {
  const std::string& transport = options.transport;
  options.launch.shared_memory = transport != "mpi";
  const bool gpus_own = transport == "auto" || transport == "nccl";
  options.launch.gpu_transport = gpus_own ? transport : "host";
}

}  // namespace

void add_bench_comm(const Command& bench) {
  const auto options = std::make_shared<CommOptions>();
  CommCases& cases = options->cases;
  const Command command = bench.add_command("comm");
  command.add({{"--transport", &options->transport},
               {"--collectives", &cases.collectives},
               {"--ops", &cases.ops},
               {"--dtypes", &cases.dtypes},
               {"--buffers", &cases.buffers},
               {"--min-bytes", &cases.least_bytes},
               {"--max-bytes", &cases.most_bytes},
               {"--factor", &cases.factor},
               {"--rounds", &options->timing.rounds},
               {"--calls", &options->timing.calls},
               {"--suite", &options->suite},
               {"--expect-ranks", &options->gate.expected_ranks},
               {"--min-busbw", &options->gate.least_gb_per_s},
               {"--update-rates", &options->update_rates},
               {"--gate", &options->gate_file},
               {"--update", &options->update},
               {"--gate-share", &options->gate_share},
               {"--pairs", &options->pairs},
               {"--json", &options->json}});
  add_rank_options(command, options->launch);
  add_listed_flags(command, {FlagOf::kComputing, FlagOf::kCollectives}, options->launch);
  const auto run = [options] {
    return launch(options->launch,
                  [&](RankContext& rank) { return run_bench_comm(*options, rank); });
  };
  command.when_chosen(run, [command, options] {
    use_launch_options(*options);
    if (!options->suite.empty()) use_suite(command, *options);
    const bool no_number = command.given("--min-busbw") > 0 && command.text("--min-busbw").empty();
    if (no_number) options->gate.least_gb_per_s = kUsualBar;
  });
}

}  // namespace fsdp::tools
