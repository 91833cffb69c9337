// fsdp doctor: what is wrong with the hosts of a job, before it. Read next: tools/doctor/doctor.h.
#include "tools/doctor/doctor.h"

#include <cstdio>

#include "core/error.h"
#include "tools/commands/commands.h"
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

void add_doctor_command(const Command& app) {
  const auto options = std::make_shared<DoctorCommandOptions>();
  options->launch.backend = "cpu";  // GPUs are looked at, none is taken
  const Command command = app.add_command("doctor");
  command.add({{"--folder", &options->folder},
               {.name = "--expect",
                .target = &options->expect,
                .refusal = why_not_expected,
                .shown = doctor::expectation_names()},
               {"--limit", &options->limit_s},
               {"--json", &options->json}});
  add_rank_options(command, options->launch);
  command.add({{"--interface", &options->launch.interface}});
  runs_on_ranks(command, options, run_doctor);
}

}  // namespace fsdp::tools
