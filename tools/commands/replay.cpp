// fsdp replay: its options. Read next: tools/run/replay.h.
#include "tools/run/replay.h"

#include "tools/commands/commands.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {

void add_replay_command(const Command& app, ChosenCommand& chosen) {
  struct Options {
    LaunchOptions launch;  // the number of ranks; the rest is the run's
    std::string run;
    int64_t step = 0;
  };
  const auto options = std::make_shared<Options>();
  const Command command = app.add_command(
      "replay", "computes steps of a run again and compares them with what it has written");
  command.add_option("run", options->run, "the run directory, with checkpoints").required().path();
  command
      .add_option("--step", options->step,
                  "from the checkpoint before this step to the one after it")
      .required()
      .from_to(int64_t{1}, INT64_MAX);
  add_rank_options(command, options->launch);
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      ReplayPlan plan;
      std::string mistake;
      try {
        plan = plan_replay(options->run, options->step);
      } catch (const std::exception& error) {
        mistake = message_of(error);
      }
      LaunchOptions how = plan.resume.config.runtime.launch;
      how.local_ranks = options->launch.local_ranks;
      how.same_on_all = options->launch.same_on_all;
      const auto run = [&](RankContext& rank) { return replay(plan, rank, print_at_once); };
      const auto check = [&](comm::Communicator& world) {
        agree(world, [&] { FSDP_CHECK(mistake.empty(), "{}", mistake); });
      };
      return launch(how, {.body = run, .first = check});
    };
  });
}

}  // namespace fsdp::tools
