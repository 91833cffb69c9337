// fsdp replay: its options. Read next: tools/run/replay.h.
#include "tools/run/replay.h"

#include "tools/commands/commands.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {

namespace {

struct ReplayOptions {
  LaunchOptions launch;  // the number of ranks; the rest is the run's
  std::string run;
  int64_t step = 0;
};

int replay_on_ranks(const ReplayOptions& options) {
  ReplayPlan plan;
  std::string mistake;
  try {
    plan = plan_replay(options.run, options.step);
  } catch (const std::exception& error) {
    mistake = message_of(error);
  }
  LaunchOptions how = plan.resume.config.runtime.launch;
  how.local_ranks = options.launch.local_ranks;
  how.same_on_all = options.launch.same_on_all;
  const auto run = [&](RankContext& rank) { return replay(plan, rank, print_at_once); };
  const auto check = [&](comm::Communicator& world) {
    agree(world, [&] { FSDP_CHECK(mistake.empty(), "{}", mistake); });
  };
  return launch(how, {.body = run, .first = check});
}

}  // namespace

void add_replay_command(const Command& app) {
  const auto options = std::make_shared<ReplayOptions>();
  const Command command = app.add_command("replay");
  command.add({{"run", &options->run}, {"--step", &options->step}});
  add_rank_options(command, options->launch);
  command.runs(options, replay_on_ranks);
}

}  // namespace fsdp::tools
