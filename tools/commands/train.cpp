// fsdp train: its options, and the ranks that run.
// Read next: tools/run/training_run.h.
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <stdio_ext.h>

#include "comm/exchange.h"
#include "tools/checkpoint/resume.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/config/config.h"
#include "tools/config/step_shape.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launch.h"
#include "tools/launch/run_output.h"
#include "tools/run/training_run.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

struct TrainOptions {
  LaunchOptions launch;  // the number of ranks; the rest is the configuration's
  ConfigOptions given;
  TrainingRunOptions run;
};

// Without what a run directory says; the default where it cannot be read.
config::TrainConfig configuration_of(const ResumeRequest& request) {
  try {
    return plan_resume({.config_file = request.config_file, .overrides = request.overrides}).config;
  } catch (const std::exception&) {
    return {};
  }
}

// What a run prints is its log, and its results are in its directory. Where nobody looks at the
// log, one that found no room is no reason to start again what was done; see also main.cpp.
int status_without_log(int status) {
  if (status != status::kDone || !starts_before().unattended) return status;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  report_error(
      "warning: standard output cannot be written: the disk is full or it was closed; the run is "
      "done all the same");
  ::__fpurge(stdout);
  std::clearerr(stdout);
  return status;
}

// The configuration says how ranks wait for each other, so it is read before they exist; what is
// wrong with it is said once they do.
int train_on_ranks(TrainOptions options) {
  requeue_until_training();
  outlive_reader();  // the run goes on; main() says at its end that nobody read all output
  ResumeRequest request;
  ResumePlan plan;
  std::string mistake;
  Cause cause = Cause::kPerson;
  const StartsBefore before = starts_before();
  try {
    const std::vector<config::Override> overrides = overrides_of(options.given);
    for (const config::Override& each : overrides) options.run.overrides.push_back(each.text);
    request = {.from = options.run.resume,
               .with_changes = options.run.resume_with_changes,
               .from_scratch = options.run.restart_from_scratch,
               .config_file = options.given.config,
               .overrides = overrides,
               .before = before};
    plan = plan_resume(request);
  } catch (const std::exception& error) {
    mistake = message_of(error);
    cause = cause_of(error);
  }
  // The first rank's view of a folder counts: other ranks may see its new entries late.
  const bool auto_resume = request.from == "auto";
  if (auto_resume && !mistake.empty()) plan.config = configuration_of(request);
  options.run.config_file = options.given.config;
  RunOutput output(stdout);
  options.run.say = [&output](const std::string& line) { output.put(line + "\n"); };
  options.run.say_beside = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  options.run.progress = &output;
  options.run.local_ranks = options.launch.local_ranks;
  LaunchOptions how = plan.config.runtime.launch;
  how.local_ranks = options.launch.local_ranks;
  // The command alone: check_same_config() compares the rest.
  how.same_on_all = {options.launch.same_on_all.front()};
  const auto run = [&](RankContext& rank) {
    return run_training(options.run, request, plan, rank);
  };
  const auto check = [&](comm::Communicator& world) {
    const bool of_first = comm::exchange_values(world, int{!mistake.empty()}).front() != 0;
    before_first_step(
        [&] {
          agree(world, [&] {
            if (!mistake.empty() && (of_first || !auto_resume))
              throw AgreedError(mistake, status::kFailed, cause);
            // Some configurations are a mistake for this number of ranks alone.
            if (!plan.finished) config::step_shape(plan.config, world.size());
          });
          check_same_config(world, plan.config);
        },
        before.count() > 0);
  };
  return launch(how, {.body = run, .first = check});
}

}  // namespace

void add_train_command(const Command& app) {
  const auto options = std::make_shared<TrainOptions>();
  const Command command = app.add_command("train");
  add_rank_options(command, options->launch);
  add_config_options(command,
                     {FlagOf::kConfigured, FlagOf::kTrain, FlagOf::kComputing, FlagOf::kCollectives,
                      FlagOf::kTransport, FlagOf::kKernels},
                     options->given);
  command.add({{"--resume", &options->run.resume},
               {"--resume-with-changes", &options->run.resume_with_changes},
               {"--restart-from-scratch", &options->run.restart_from_scratch}});
  command.footer("Keys of the file and of --set, as section.key [default]:\n" +
                 config::config_help());
  command.when_chosen([options] { return status_without_log(train_on_ranks(*options)); });
}

}  // namespace fsdp::tools
