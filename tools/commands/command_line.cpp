// The list of commands and the options they share.
#include "tools/commands/command_line.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/text/similar_names.h"
#include "tools/commands/listed_flags.h"
#include "tools/config/key_values.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/load_model.h"

namespace fsdp::tools {
namespace {

// A command that the arguments name.
struct NamedCommand {
  std::string path;                     // "bench step"
  std::vector<std::string> options;     // "--batch"
  std::vector<std::string> with_value;  // the options that need a value
};

std::string path_of(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  if (!parent) return "";
  const std::string above = path_of(*parent);
  return above + (above.empty() ? "" : " ") + app.get_name();
}

NamedCommand named_command(const CLI::App& app) {
  NamedCommand out = {.path = path_of(app), .options = {}, .with_value = {}};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      out.options.push_back("--" + name);
      if (option->get_items_expected_min() > 0) out.with_value.push_back("--" + name);
    }
  }
  return out;
}

// The key of which `name` is the last part, or all, if the command takes keys by --set.
std::string key_of(const NamedCommand& command, std::string name) {
  if (std::ranges::find(command.options, "--set") == command.options.end()) return "";
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& [key, value] : config::key_values(config::TrainConfig())) {
    if (key == name || key.ends_with("." + name)) return key;
  }
  return "";
}

std::string about_option(const NamedCommand& command, const std::string& given) {
  const std::string bare = given.substr(given.find_first_not_of('-'));
  const std::string nearest = nearest_key("--" + bare, command.options);
  std::string meant;
  if (nearest == given) {
    meant = fmt::format("; {} comes after \"{}\"", nearest, command.path);
  } else if (nearest == "--" + bare) {
    meant = fmt::format("; the option is {}", nearest);
  } else if (const std::string key = key_of(command, bare); !key.empty()) {
    meant = fmt::format("; to set the key of this name: --set {}=VALUE", key);
  } else if (resembles("--" + bare, nearest)) {
    meant = fmt::format("; the nearest option is {}", nearest);
  }
  return fmt::format("{}: unknown option {}{} (see fsdp {} --help)", command.path, given, meant,
                     command.path);
}

// About arguments that no option takes: one line. `extras`: in order; not empty.
std::string unexpected_arguments(const NamedCommand& command,
                                 const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    const std::string name = extra.substr(0, extra.find('='));
    if (name.find_first_not_of('-') == std::string::npos || name[0] != '-') continue;
    return about_option(command, name);
  }
  return fmt::format("{}: unexpected argument \"{}\" (see fsdp {} --help)", command.path,
                     extras.front(), command.path);
}

// About an option without its value: one line, or "". `arguments`: what follows the command's name.
// An option's name is no value: a text that looks like one is given as --prompt=--steps.
std::string forgotten_value(const NamedCommand& command,
                            const std::vector<std::string>& arguments) {
  const auto names = [](const std::vector<std::string>& options, const std::string& argument) {
    return std::ranges::find(options, argument.substr(0, argument.find('='))) != options.end();
  };
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& option = arguments[i];
    if (option.ends_with('=') && option.find('=') + 1 == option.size() &&
        names(command.with_value, option)) {
      const std::string name = option.substr(0, option.size() - 1);
      return fmt::format("{}: {} needs a value; an empty text is {} \"\" (see fsdp {} --help)",
                         command.path, name, name, command.path);
    }
    if (option.find('=') != std::string::npos || !names(command.with_value, option)) continue;
    const bool last = i + 1 == arguments.size();
    if (!last && !names(command.options, arguments[i + 1])) continue;
    const std::string next = last ? "" : fmt::format(", but {} follows", arguments[i + 1]);
    return fmt::format("{}: {} needs a value{} (see fsdp {} --help)", command.path, option, next,
                       command.path);
  }
  return "";
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands(nullptr)) names.push_back(each->get_name());
  return names;
}

// Names the mistake in the command of the first arguments, in its subcommand, or in an option
// without its value. Returns "" when the first arguments are options: CLI11 would only miss a
// command. It would also take the next option for a value.
std::string first_mistake(CLI::App& app, int argc, const char* const* argv) {
  CLI::App* command = &app;
  int i = 1;
  for (; i < argc && argv[i][0] != '-'; ++i) {
    std::vector<std::string> names = names_of_commands(*command);
    if (names.empty()) break;
    if (std::ranges::find(names, argv[i]) == names.end()) {
      const std::string nearest = nearest_key(argv[i], names), path = path_of(*command);
      if (resembles(argv[i], nearest)) names = {nearest};
      return fmt::format("unknown command \"{}{}{}\"; {} {}", path, path.empty() ? "" : " ",
                         argv[i], names.size() == 1 ? "the nearest is" : "expected",
                         fmt::join(names, ", "));
    }
    command = command->get_subcommand(argv[i]);
  }
  return command == &app ? "" : forgotten_value(named_command(*command), {argv + i, argv + argc});
}

// The last command that the arguments name, once they are parsed.
const CLI::App& chosen_command(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

// Says CLI11's message in the words of this program. It knows its own kinds of mistakes by class
// only.
std::string mistake_text(const CLI::ParseError& error, const CLI::App& command) {
  const std::string text = error.what();
  const std::string name = text.substr(0, text.find_first_of(": "));
  const auto is = [&](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  if (text == "A subcommand is required") {
    return fmt::format("expected a command: {}", fmt::join(names_of_commands(command), ", "));
  }
  if (is(CLI::ExitCodes::RequiredError)) return name + ": missing";
  if (text.find("flag override") != text.npos)
    return "--" + name + ": expected no value after a flag";
  if (is(CLI::ExitCodes::ArgumentMismatch)) {
    const size_t least = text.find("At least ");
    const CLI::Option* option = command.get_option_no_throw(name);
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

// In the order of the help.
constexpr AddCommand* kCommands[] = {
    add_train_command,   add_generate_command, add_eval_command,     add_verify_command,
    add_bench_command,   add_explain_command,  add_memory_command,   add_plan_command,
    add_sweep_command,   add_compare_command,  add_trace_command,    add_report_command,
    add_status_command,  add_data_command,     add_tokenize_command, add_merge_command,
    add_convert_command, add_inspect_command,  add_replay_command,   add_adopt_command,
    add_launch_command,  add_doctor_command};

// The settings that must be alike on all ranks; the others are each rank's own.
std::vector<std::string> settings_of(const Command& command) {
  std::vector<std::string> own;
  for (const std::string& key : config::keys_of_each_rank()) own.push_back(flag_name(key));
  std::vector<std::string> settings = command.settings(own);
  settings.insert(settings.begin(), "command: " + command.path());
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
  CommandLine result;
  const Command program(&app, &result.command);
  for (AddCommand* const add : kCommands) add(program);
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
    const NamedCommand command = named_command(chosen_command(app));
    const char* const blank = command.path.empty() ? "" : " ";
    const std::string mistake =
        extras.empty()
            ? fmt::format("{}{}{} (see fsdp {}{}--help)", command.path, *blank ? ": " : "",
                          mistake_text(error, chosen_command(app)), command.path, blank)
            : unexpected_arguments(command, extras);
    result = {.command = {}, .status = help ? 0 : 2, .message = help ? out.str() : mistake};
  }
  return result;
}

void print_note(const std::string& text) { fmt::print(stderr, "fsdp: note: {}\n", text); }

void print_at_once(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void add_model_options(const Command& command, ModelOptions& options) {
  command.add("@model", {{"folder", &options.folder},
                         {"--base", &options.base},
                         {"--tokenizer", &options.tokenizer},
                         {"--dtype", &options.dtype},
                         {"--strategy", &options.strategy}});
}

void add_rank_options(const Command& command, LaunchOptions& options) {
  command.add("@ranks", {{"--local-ranks", &options.local_ranks}});
  command.after_parsing([command, &options] { options.same_on_all = settings_of(command); });
}

void add_launch_options(const Command& command, LaunchOptions& options) {
  add_rank_options(command, options);
  add_listed_flags(command,
                   {FlagOf::kComputing, FlagOf::kCollectives, FlagOf::kTransport, FlagOf::kKernels},
                   options);
}

}  // namespace fsdp::tools
