// The list of commands and the options they share.
#include "tools/commands/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/commands/unexpected_arguments.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

// "" when the first arguments name a command, with its subcommand where it has some, or are
// options. CLI11 would only miss a command.
std::string unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* command = &app;
  std::string path;
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    std::vector<std::string> names;
    const CLI::App* chosen = nullptr;
    for (const CLI::App* each : command->get_subcommands(nullptr)) {
      names.push_back(each->get_name());
      if (each->get_name() == argv[i]) chosen = each;
    }
    if (names.empty()) break;
    if (!chosen) {
      return fmt::format("unknown command \"{}{}\"; expected {}", path, argv[i],
                         fmt::join(names, ", "));
    }
    command = chosen;
    path += chosen->get_name() + " ";
  }
  return "";
}

// The last command that the arguments name.
NamedCommand named_command(const CLI::App& root) {
  NamedCommand out;
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    out.path += (out.path.empty() ? "" : " ") + app->get_name();
  }
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) out.options.push_back("--" + name);
  }
  return out;
}

// What all ranks must have been given alike; the rest is each rank's own.
std::vector<std::string> settings_of(const Command& command) {
  std::vector<std::string> settings = command.settings({"--threads", "--cache-dir"});
  settings.insert(settings.begin(), "command: " + command.name());
  return settings;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CLI::App app("Fully sharded data parallel training of transformers", "fsdp");
  app.require_subcommand(1);
  app.set_version_flag("--version", "fsdp " FSDP_VERSION);
  const Command program(&app);
  CommandLine result;
  add_train_command(program, result.command);
  add_generate_command(program, result.command);
  add_eval_command(program, result.command);
  add_verify_command(program, result.command);
  add_bench_command(program, result.command);
  add_explain_command(program, result.command);
  add_compare_command(program, result.command);
  add_trace_command(program, result.command);
  add_tokenize_command(program, result.command);
  add_merge_command(program, result.command);
  add_convert_command(program, result.command);
  add_inspect_command(program, result.command);
  const std::string unknown = unknown_command(app, argc, argv);
  if (!unknown.empty()) return {.command = {}, .status = 2, .message = unknown};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool help = error.get_exit_code() == 0;
    std::ostringstream out;
    app.exit(error, out, out);
    const bool unplaced = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    const std::vector<std::string> extras =
        unplaced ? app.remaining(true) : std::vector<std::string>{};
    const std::string mistake = extras.empty() ? std::string(error.what()) + " (see fsdp --help)"
                                               : unexpected_arguments(named_command(app), extras);
    result = {.command = {}, .status = help ? 0 : 2, .message = help ? out.str() : mistake};
  }
  return result;
}

std::string not_below_zero(const std::string& text) {
  double value = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool good = error == std::errc() && rest == end && std::isfinite(value) && value >= 0;
  return good ? "" : fmt::format("expected a number from 0, got {:.40}", text);
}

std::string not_empty(const std::string& text) { return text.empty() ? "expected a name" : ""; }

void add_model_options(const Command& command, ModelOptions& options) {
  command.add_option("folder", options.folder, "of a model, or of a LoRA adapter for one")
      .required();
  command.add_option("--base", options.base,
                     "of an adapter: its model's folder (default: as the adapter says)");
  command.add_option("--tokenizer", options.tokenizer,
                     "bytes, a tokenizer.json or a folder with one (default: the model folder's, "
                     "or bytes)");
  command.add_option("--dtype", options.dtype, "of the computation (default: f32)")
      .one_of({"f64", "f32", "bf16", "f16"});
  command
      .add_option("--strategy", options.strategy,
                  "full_shard: each block is gathered as it is needed; no_shard: every rank holds "
                  "the model (default: full_shard on several ranks)")
      .one_of({"full_shard", "no_shard"});
}

void add_compute_options(const Command& command, LaunchOptions& options) {
  command
      .add_option("--threads", options.threads,
                  "threads per rank (default: the cores it may use / the ranks that share them)")
      .from_to(1, 1024);
  command.add_option("--backend", options.backend, "auto (a GPU if there is one), cpu, cuda")
      .one_of({"auto", "cpu", "cuda"});
}

void add_product_options(const Command& command, LaunchOptions& options) {
  command.add_flag("--tf32", options.products.tf32,
                   "products of f32 on a GPU may round what they multiply to TF32 (11 bits)");
  command
      .add_option("--matmul-choice", options.products.choice,
                  "of a GPU's algorithms: heuristic (cuBLASLt's first), timed (the fastest of its "
                  "first 8, kept in .cache/matmul)")
      .one_of({"heuristic", "timed"});
}

void add_attention_option(const Command& command, LaunchOptions& options) {
  command
      .add_option("--attention", options.attention,
                  "on a GPU: auto (cuDNN where it is installed and does the same), cudnn (an error "
                  "where it does not), own")
      .one_of({"auto", "cudnn", "own"});
}

void add_rank_options(const Command& command, LaunchOptions& options) {
  command.add_option("--local-ranks", options.local_ranks, "run N ranks as threads, without MPI")
      .from_to(1, 1024);
  command.after_parsing([command, &options] { options.same_on_all = settings_of(command); });
}

void add_collective_option(const Command& command, LaunchOptions& options) {
  command
      .add_option("--nccl-ctas", options.nccl_ctas,
                  "multiprocessors of a GPU that a collective may take; products leave twice as "
                  "many free, for two at once (0, the default: NCCL and cuBLASLt choose)")
      .from_to(0, 64);
}

void add_launch_options(const Command& command, LaunchOptions& options) {
  add_rank_options(command, options);
  add_compute_options(command, options);
  command.add_flag("--share-gpus", options.share_gpus, "several ranks may use one GPU");
  command
      .add_option("--gpu-transport", options.gpu_transport,
                  "between GPUs: auto (NCCL where each rank has its own), nccl, host")
      .one_of({"auto", "nccl", "host"});
  add_collective_option(command, options);
  add_attention_option(command, options);
  add_product_options(command, options);
}

}  // namespace fsdp::tools
