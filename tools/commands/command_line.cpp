// The list of commands and the options they share.
#include "tools/commands/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/text/similar_names.h"
#include "tools/commands/listed_flags.h"
#include "tools/commands/unexpected_arguments.h"
#include "tools/config/key_values.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

NamedCommand named_command(const CLI::App& app, const std::string& path) {
  NamedCommand out = {.path = path, .options = {}, .with_value = {}};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      out.options.push_back("--" + name);
      if (option->get_items_expected_min() > 0) out.with_value.push_back("--" + name);
    }
  }
  return out;
}

// What is wrong with the command that the first arguments name, with its subcommand where it has
// some, or with an option without its value. "" when they are options: CLI11 would only miss a
// command. It would also take the next option for a value.
std::string first_mistake(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* command = &app;
  std::string path;
  int i = 1;
  for (; i < argc && argv[i][0] != '-'; ++i) {
    std::vector<std::string> names;
    const CLI::App* chosen = nullptr;
    for (const CLI::App* each : command->get_subcommands(nullptr)) {
      names.push_back(each->get_name());
      if (each->get_name() == argv[i]) chosen = each;
    }
    if (names.empty()) break;
    if (!chosen) {
      const std::string nearest = nearest_key(argv[i], names);
      if (resembles(argv[i], nearest)) names = {nearest};
      return fmt::format("unknown command \"{}{}{}\"; {} {}", path, path.empty() ? "" : " ",
                         argv[i], names.size() == 1 ? "the nearest is" : "expected",
                         fmt::join(names, ", "));
    }
    command = chosen;
    path += (path.empty() ? "" : " ") + chosen->get_name();
  }
  if (path.empty()) return "";
  return forgotten_value(named_command(*command, path), {argv + i, argv + argc});
}

// The last command that the arguments name, once they are parsed.
NamedCommand named_command(const CLI::App& root) {
  std::string path;
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    path += (path.empty() ? "" : " ") + app->get_name();
  }
  return named_command(*app, path);
}

// The last command that is named.
const CLI::App& chosen_command(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

std::string names_of_commands(const CLI::App& root) {
  std::vector<std::string> names;
  for (const CLI::App* each : chosen_command(root).get_subcommands(nullptr)) {
    names.push_back(each->get_name());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// What CLI11 says, in the words of this program. It knows its own kinds of mistakes by class only.
std::string mistake_text(const CLI::ParseError& error, const CLI::App& app) {
  const std::string text = error.what();
  const std::string name = text.substr(0, text.find_first_of(": "));
  const auto is = [&](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  if (text == "A subcommand is required") {
    return fmt::format("expected a command: {}", names_of_commands(app));
  }
  if (is(CLI::ExitCodes::RequiredError)) return name + ": missing";
  if (text.find("flag override") != text.npos)
    return "--" + name + ": expected no value after a flag";
  if (is(CLI::ExitCodes::ArgumentMismatch)) {
    const size_t least = text.find("At least ");
    const CLI::Option* option = chosen_command(app).get_option_no_throw(name);
    return least == text.npos
               ? fmt::format("{}: expected one value, got {}", name, option ? option->count() : 0)
               : fmt::format("{}: expected at least {} values, got {}", name,
                             std::stoi(text.substr(least + 9)), text.substr(text.rfind(' ') + 1));
  }
  if (is(CLI::ExitCodes::ConversionError)) {
    const size_t equals = text.find(" = ");
    if (equals == text.npos) return name + ": expected no value after a flag";
    constexpr std::string_view kBefore = "Could not convert: ";
    return fmt::format("{}: expected a number of at most 64 bits, got {:.40}",
                       text.substr(kBefore.size(), equals - kBefore.size()),
                       text.substr(equals + 3));
  }
  return text;
}

std::vector<std::string> unmarked(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) argument = unmarked_argument(std::move(argument));
  return arguments;
}

// What all ranks must have been given alike; the rest is each rank's own.
std::vector<std::string> settings_of(const Command& command) {
  std::vector<std::string> own;
  for (const std::string& key : config::keys_of_each_rank()) own.push_back(flag_name(key));
  std::vector<std::string> settings = command.settings(own);
  settings.insert(settings.begin(), "command: " + command.name());
  return settings;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  // `fsdp help train` is `fsdp train --help`.
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    std::vector<const char*> asked(argv, argv + argc);
    asked.erase(asked.begin() + 1);
    asked.push_back("--help");
    return parse_command_line(argc, asked.data());
  }
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
  add_memory_command(program, result.command);
  add_plan_command(program, result.command);
  add_sweep_command(program, result.command);
  add_compare_command(program, result.command);
  add_trace_command(program, result.command);
  add_report_command(program, result.command);
  add_status_command(program, result.command);
  add_tokenize_command(program, result.command);
  add_merge_command(program, result.command);
  add_convert_command(program, result.command);
  add_inspect_command(program, result.command);
  add_replay_command(program, result.command);
  add_adopt_command(program, result.command);
  add_launch_command(program, result.command);
  add_doctor_command(program, result.command);
  const std::string mistake = first_mistake(app, argc, argv);
  if (!mistake.empty()) return {.command = {}, .status = 2, .message = mistake};
  std::vector<std::string> marked;
  for (int i = argc - 1; i > 0; --i)
    marked.push_back(marked_argument(argv[i]));  // as CLI11 has them
  try {
    app.parse(std::move(marked));
  } catch (const CLI::ParseError& error) {
    const bool help = error.get_exit_code() == 0;
    std::ostringstream out;
    app.exit(error, out, out);
    const bool unplaced = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    const std::vector<std::string> extras =
        unplaced ? unmarked(app.remaining(true)) : std::vector<std::string>{};
    const std::string path = named_command(app).path;
    const std::string mistake =
        extras.empty() ? fmt::format("{}{}{} (see fsdp {}{}--help)", path, path.empty() ? "" : ": ",
                                     mistake_text(error, app), path, path.empty() ? "" : " ")
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

std::string not_empty(const std::string& text) {
  return text.empty() ? "expected a value, got an empty text" : "";
}

void print_note(const std::string& text) { fmt::print(stderr, "fsdp: note: {}\n", text); }

void print_at_once(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void add_model_options(const Command& command, ModelOptions& options) {
  command.add_option("folder", options.folder, "of a model, or of a LoRA adapter for one")
      .required()
      .path();
  command
      .add_option(
          "--base", options.base,
          "for an adapter: the folder of its base model (default: the one the adapter names)")
      .path();
  command
      .add_option("--tokenizer", options.tokenizer,
                  "bytes, a tokenizer.json or a folder with one (default: the model folder's, or "
                  "bytes)")
      .path();
  command.add_option("--dtype", options.dtype, "dtype to compute in (default: f32)")
      .one_of({"f64", "f32", "bf16", "f16"});
  command
      .add_option("--strategy", options.strategy,
                  "full_shard: each block is gathered as it is needed; no_shard: every rank holds "
                  "the model (default: full_shard on several ranks)")
      .one_of({"full_shard", "no_shard"});
}

void add_rank_options(const Command& command, LaunchOptions& options) {
  command.add_option("--local-ranks", options.local_ranks, "run N ranks as threads, without MPI")
      .from_to(1, 1024);
  command.after_parsing([command, &options] { options.same_on_all = settings_of(command); });
}

void add_launch_options(const Command& command, LaunchOptions& options) {
  add_rank_options(command, options);
  add_listed_flags(command,
                   {FlagOf::kComputing, FlagOf::kCollectives, FlagOf::kTransport, FlagOf::kKernels},
                   options);
}

}  // namespace fsdp::tools
