// fsdp verify: compares this program with a folder of reference results, and prints the largest
// error of each quantity beside its limit.
// Exit status: 0 within all limits, 1 above one or on an error, 2 when the folder needs something
// that this program, or this number of ranks, does not do: then not all of it was compared.
// Read next: tools/verify/expected_results.h (the folder), tools/verify/verification.h.
#include <cmath>
#include <cstdio>

#include "comm/exchange.h"
#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/config/config.h"
#include "tools/launch/launch.h"
#include "tools/verify/verification.h"

namespace fsdp::tools {
namespace {

struct VerifyOptions {
  LaunchOptions launch;
  std::string folder;
  std::string dtype;     // empty: the folder's
  std::string strategy;  // empty: the folder's
  int shard_size = 0;
  bool trajectory = false;
  double tolerance = -1;  // < 0: the folder's limits
  bool json = false;
};

constexpr int kUnsupportedStatus = 2;

std::string strategy_text(const VerifyOptions& options, const ExpectedResults& expected) {
  return options.strategy.empty() ? std::string(choice_name(expected.run.fsdp.strategy))
                                  : options.strategy;
}

void print_json(const VerifyOptions& options, const ExpectedResults& expected, const Report& report,
                int ranks) {
  Json out = {{"folder", options.folder},
              {"layout", expected.layout},
              {"dtype", name_of(expected.dtype)},
              {"strategy", strategy_text(options, expected)},
              {"ranks", ranks},
              {"passed", report.passed() && expected.left_out.empty()},
              {"checks", Json::array()},
              {"left_out", expected.left_out},
              {"notes", expected.notes}};
  // JSON has no infinity: an error that is not finite is null.
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(); };
  for (const Check& check : report.checks()) {
    Json line = {{"name", check.name},
                 {"error", number(check.error)},
                 {"limit", check.limit ? Json(*check.limit) : Json()},
                 {"passed", check.passed()},
                 {"excused_by_f64_error", check.judge_error ? Json(*check.judge_error) : Json()},
                 {"worst", check.worst},
                 {"errors", Json::object()}};
    for (const auto& [part, error] : check.parts) line["errors"][part] = number(error);
    out["checks"].push_back(std::move(line));
  }
  fmt::print("{}\n", out.dump({.indent = 2}));
}

std::string verdict(const ExpectedResults& expected, const Report& report) {
  if (!report.passed()) return "ABOVE A LIMIT";
  if (!expected.left_out.empty()) return "INCOMPLETE: not everything was compared";
  if (report.excused() == 0) return "within all limits";
  return fmt::format("within the limits, but for {} excused by the f64 run", report.excused());
}

void print_table(const VerifyOptions& options, const ExpectedResults& expected,
                 const Report& report, int ranks) {
  fmt::print("{}: {}, {}, {}, {} rank{}\n\n{}", options.folder, expected.config.family,
             name_of(expected.dtype), strategy_text(options, expected), ranks,
             ranks == 1 ? "" : "s", report.table());
  for (const std::string& reason : expected.left_out) fmt::print("{}\n", reason);
  for (const std::string& note : expected.notes) fmt::print("{}\n", note);
  fmt::print("\n{}\n", verdict(expected, report));
}

void print_unsupported(const VerifyOptions& options, const std::string& reason) {
  if (options.json) {
    const Json out = {{"folder", options.folder}, {"unsupported", reason}};
    fmt::print("{}\n", out.dump({.indent = 2}));
  }
  fmt::print(stderr, "fsdp: {}\n", reason);
}

int run_verify(const VerifyOptions& options, RankContext& rank) {
  ExpectedResults expected;
  std::string unsupported;
  agree(rank.world, [&] {
    try {
      ExpectedChoice choice = {.trajectory = options.trajectory,
                               .all_variants = options.strategy.empty()};
      if (!options.dtype.empty()) choice.dtype = parse_dtype(options.dtype);
      expected = read_expected_results(options.folder, choice);
      expected.leave_out_runs_of_other_ranks(rank.world.size());
    } catch (const Unsupported& error) {
      unsupported = error.what();
    }
  });
  if (const auto reason = comm::first_to_say(rank.world, unsupported)) {
    if (rank.world.rank() == 0) print_unsupported(options, reason->text);
    return kUnsupportedStatus;
  }
  if (options.tolerance >= 0) expected.set_all_limits(options.tolerance);
  VerificationOptions how = {.shard_size = options.shard_size, .arbitrate = options.tolerance < 0};
  if (!options.strategy.empty()) how.strategy = config::parse_strategy(options.strategy);
  const Report report = verify(rank, expected, how);
  if (rank.world.rank() == 0) {
    (options.json ? print_json : print_table)(options, expected, report, rank.world.size());
    std::fflush(stdout);
  }
  if (!report.passed()) return 1;
  return expected.left_out.empty() ? 0 : kUnsupportedStatus;
}

}  // namespace

void add_verify_command(const Command& app) {
  const auto options = std::make_shared<VerifyOptions>();
  const Command command = app.add_command("verify");
  command.add(
      {{"folder", &options->folder},
       {"--dtype", &options->dtype},
       {.name = "--strategy", .target = &options->strategy, .one_of = config::strategy_names()},
       {"--shard-size", &options->shard_size},
       {"--trajectory", &options->trajectory},
       {"--tolerance", &options->tolerance},
       {"--json", &options->json}});
  add_launch_options(command, options->launch);
  runs_on_ranks(command, options, run_verify);
}

}  // namespace fsdp::tools
