// fsdp doctor: what is wrong with the hosts of a job, before it. Read next: tools/doctor/doctor.h.
#include "tools/doctor/doctor.h"

#include <cstdio>

#include "core/error.h"
#include "tools/commands/commands.h"
#include "tools/doctor/table.h"
#include "tools/launch/launch.h"
#include "tools/report/source_commit.h"

namespace fsdp::tools {
namespace {

struct DoctorCommandOptions {
  LaunchOptions launch;
  std::string folder = ".";
  std::string expect;
  int64_t limit_s = 30;
  bool json = false;
};

int run_doctor(const DoctorCommandOptions& options, RankContext& rank) {
  const std::vector<doctor::HostReport> hosts =
      doctor::examine(rank.world, {.program = "fsdp " FSDP_VERSION ", commit " + source_commit(),
                                   .folder = options.folder,
                                   .expected = doctor::parse_expectations(options.expect),
                                   .limit = std::chrono::seconds(options.limit_s),
                                   .launched = rank.under_launcher});
  if (rank.world.rank() == 0) {
    const std::string text =
        options.json ? doctor::to_json(hosts).dump({.indent = 2, .replace = true}) + "\n"
                     : doctor::table(hosts);
    std::fputs(text.c_str(), stdout);
  }
  return doctor::any_failed(hosts) ? status::kFailed : status::kDone;
}

std::string why_not_expected(const std::string& text) {
  try {
    doctor::parse_expectations(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

void add_doctor_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<DoctorCommandOptions>();
  options->launch.backend = "cpu";  // GPUs are looked at, none is taken
  const Command command = app.add_command(
      "doctor", "looks at the hosts of a job: what is wrong, and the line that mends it");
  command
      .add_option("--folder", options->folder,
                  "that the hosts share (default: the working directory)")
      .path()
      .check(not_empty);
  command
      .add_option("--expect", options->expect,
                  "what must be there, gpus=8,hosts=2: some of " + doctor::expectation_names())
      .check(why_not_expected);
  command.add_option("--limit", options->limit_s, "seconds that one look may take (default: 30)")
      .from_to(int64_t{1}, int64_t{100});
  command.add_flag("--json", options->json, "print JSON");
  add_rank_options(command, options->launch);
  command.add_option("--interface", options->launch.interface,
                     "network cards of MPI, as launch.interface of train");
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      return launch(options->launch, [&](RankContext& rank) { return run_doctor(*options, rank); });
    };
  });
}

}  // namespace fsdp::tools
