// The subcommands of the program, one source file each: tools/commands/<name>.cpp (merge:
// convert.cpp). Each function declares what its command's options fill, and what it does when the
// command is the one chosen. Nothing runs while arguments are still being parsed. In short,
// eval.cpp:
//
//   void add_eval_command(const Command& app) {
//     const auto options = std::make_shared<EvalOptions>();  // outlives the parsing
//     const Command command = app.add_command("eval");
//     command.add({{"--data", &options->text.files}, {"--batch", &options->batch}});
//     add_launch_options(command, options->launch);
//     runs_on_ranks(command, options, run_eval);
//   }
//
// A new command: its file, its section of commands.json, and its name in the lists here and in
// command_line.cpp.
#pragma once

#include <string>

#include "tools/commands/options.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {

struct ModelOptions;

using AddCommand = void(const Command& app);

AddCommand add_train_command, add_generate_command, add_eval_command, add_verify_command;
AddCommand add_bench_command, add_explain_command, add_memory_command, add_plan_command;
AddCommand add_sweep_command, add_compare_command, add_trace_command, add_report_command;
AddCommand add_status_command, add_data_command, add_tokenize_command, add_merge_command;
AddCommand add_convert_command;
AddCommand add_inspect_command, add_replay_command, add_adopt_command, add_launch_command;
AddCommand add_doctor_command;
// Below `launch`.
AddCommand add_launch_slurm, add_launch_batch;

// "fsdp: note: ..." on stderr.
void print_note(const std::string& text);
// A line on stdout that is there at once, also for a reader at the end of a pipe.
void print_at_once(const std::string& line);

void add_model_options(const Command& command, ModelOptions& options);

// --local-ranks, for every command that runs on ranks. All that the command is given goes to
// options.same_on_all.
void add_rank_options(const Command& command, LaunchOptions& options);
// The same and all flags of launch options, for commands that run a model on ranks. A part of the
// flags: listed_flags.h.
void add_launch_options(const Command& command, LaunchOptions& options);

// The command runs on the ranks of options->launch.
template <typename Options>
void runs_on_ranks(const Command& command, const std::shared_ptr<Options>& options,
                   int (*run)(const Options&, RankContext&)) {
  command.when_chosen([options, run] {
    return launch(options->launch, [&](RankContext& rank) { return run(*options, rank); });
  });
}

}  // namespace fsdp::tools
