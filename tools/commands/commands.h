// The subcommands of the program, one source file each: tools/commands/<name>.cpp (merge:
// convert.cpp). Each function declares its command's options on the command line; when the command
// is the one chosen, it sets `chosen` to what has to be done. Nothing runs while arguments are
// still being parsed. In short, eval.cpp:
//
//   void add_eval_command(const Command& app, ChosenCommand& chosen) {
//     const auto options = std::make_shared<EvalOptions>();  // outlives the parsing
//     const Command command = app.add_command("eval", "the loss of a model on a text");
//     command.add_option("--data", options->data, "the text").required();
//     add_launch_options(command, options->launch);
//     command.when_chosen([&chosen, options] {
//       chosen = [options] {
//         return launch(options->launch,
//                       [&](RankContext& rank) { return Evaluation(*options, rank).run(); });
//       };
//     });
//   }
//
// A new command: its file, its declaration here, and its call in command_line.cpp.
#pragma once

#include <functional>
#include <string>

#include "tools/commands/options.h"

namespace fsdp::tools {

struct LaunchOptions;

using ChosenCommand = std::function<int()>;  // returns the exit status; throws Error

void add_train_command(const Command& app, ChosenCommand& chosen);
void add_generate_command(const Command& app, ChosenCommand& chosen);
void add_eval_command(const Command& app, ChosenCommand& chosen);
void add_verify_command(const Command& app, ChosenCommand& chosen);
void add_bench_command(const Command& app, ChosenCommand& chosen);
void add_explain_command(const Command& app, ChosenCommand& chosen);
void add_memory_command(const Command& app, ChosenCommand& chosen);
void add_plan_command(const Command& app, ChosenCommand& chosen);
void add_sweep_command(const Command& app, ChosenCommand& chosen);
void add_compare_command(const Command& app, ChosenCommand& chosen);
void add_trace_command(const Command& app, ChosenCommand& chosen);
void add_tokenize_command(const Command& app, ChosenCommand& chosen);
void add_merge_command(const Command& app, ChosenCommand& chosen);
void add_convert_command(const Command& app, ChosenCommand& chosen);
void add_inspect_command(const Command& app, ChosenCommand& chosen);
void add_adopt_command(const Command& app, ChosenCommand& chosen);
void add_launch_command(const Command& app, ChosenCommand& chosen);
void add_doctor_command(const Command& app, ChosenCommand& chosen);
void add_replay_command(const Command& app, ChosenCommand& chosen);
void add_status_command(const Command& app, ChosenCommand& chosen);
void add_report_command(const Command& app, ChosenCommand& chosen);

// For check() of an option: "", or why the text is no finite number from 0.
std::string not_below_zero(const std::string& text);
// The same: "", or that there is no text. It is what a shell makes of a variable that is not set.
std::string not_empty(const std::string& text);

// "fsdp: note: ..." on stderr.
void print_note(const std::string& text);
// A line on stdout that is there at once, also for a reader at the end of a pipe.
void print_at_once(const std::string& line);

// The model that a command uses, and how.
struct ModelOptions {
  std::string folder;
  std::string base;
  std::string tokenizer;  // "": the model folder's, or bytes if the vocabulary fits
  std::string dtype = "f32";
  std::string strategy;  // "": no_shard on one rank, full_shard on several
};
void add_model_options(const Command& command, ModelOptions& options);

// --local-ranks, for every command that runs on ranks. All that the command is given goes to
// options.same_on_all.
void add_rank_options(const Command& command, LaunchOptions& options);
// The same and all flags of launch options, for commands that run a model on ranks. A part of the
// flags: listed_flags.h.
void add_launch_options(const Command& command, LaunchOptions& options);

}  // namespace fsdp::tools
