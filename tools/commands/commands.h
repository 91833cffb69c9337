// The subcommands of the program, one source file each: tools/commands/<name>.cpp
// (merge: convert.cpp). Each function
// declares its command's options on the command line; when the command is the one chosen, it sets
// `chosen` to what has to be done. Nothing runs while arguments are still being parsed.
//
//   void add_train_command(CLI::App& app, ChosenCommand& chosen) {
//     const auto options = std::make_shared<TrainOptions>();  // outlives the parsing
//     CLI::App* command = app.add_subcommand("train", "trains a model");
//     command->add_option("--config", options->config, "the YAML file")->required();
//     add_launch_options(*command, options->launch);
//     command->callback([&chosen, options] {
//       chosen = [options] {
//         return launch(options->launch, [&](RankContext& rank) { return run_train(*options, rank);
//         });
//       };
//     });
//   }
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace fsdp::tools {

struct LaunchOptions;

using ChosenCommand = std::function<int()>;  // returns the exit status; throws Error

void add_train_command(CLI::App& app, ChosenCommand& chosen);
void add_generate_command(CLI::App& app, ChosenCommand& chosen);
void add_eval_command(CLI::App& app, ChosenCommand& chosen);
void add_verify_command(CLI::App& app, ChosenCommand& chosen);
void add_bench_command(CLI::App& app, ChosenCommand& chosen);
void add_explain_command(CLI::App& app, ChosenCommand& chosen);
void add_compare_command(CLI::App& app, ChosenCommand& chosen);
void add_tokenize_command(CLI::App& app, ChosenCommand& chosen);
void add_merge_command(CLI::App& app, ChosenCommand& chosen);
void add_convert_command(CLI::App& app, ChosenCommand& chosen);
void add_inspect_command(CLI::App& app, ChosenCommand& chosen);

// For check() of an option: "", or why the text is no finite number from 0.
std::string not_below_zero(const std::string& text);
// The same: "", or that there is no name.
std::string not_empty(const std::string& text);

// The model that a command uses, and how.
struct ModelOptions {
  std::string folder;
  std::string base;
  std::string tokenizer;  // "": the model folder's, or bytes if the vocabulary fits
  std::string dtype = "f32";
  std::string strategy;  // "": no_shard on one rank, full_shard on several
};
void add_model_options(CLI::App& command, ModelOptions& options);

// How GPUs multiply matrices: part of add_launch_options().
void add_product_options(CLI::App& command, LaunchOptions& options);
// Who computes attention on a GPU: part of add_launch_options().
void add_attention_option(CLI::App& command, LaunchOptions& options);
// What a collective over NCCL may take of a GPU: part of add_launch_options().
void add_collective_option(CLI::App& command, LaunchOptions& options);
// --threads and the backend's, for every command that computes.
void add_compute_options(CLI::App& command, LaunchOptions& options);
// --local-ranks, for every command that runs on ranks. All that the command is given goes to
// options.same_on_all.
void add_rank_options(CLI::App& command, LaunchOptions& options);
// Both, and what GPUs share and talk over, for commands that compute on ranks.
void add_launch_options(CLI::App& command, LaunchOptions& options);

}  // namespace fsdp::tools
