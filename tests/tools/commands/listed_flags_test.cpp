// A walk over the list of options: every flag of every command sets its option, and is in the help.
#include "tools/commands/listed_flags.h"

#include <CLI/CLI.hpp>
#include <doctest/doctest.h>

#include "tests/support/listed_options.h"
#include "tests/support/temp_folder.h"
#include "tools/commands/command_line.h"

namespace fsdp::tools {
namespace {

const std::vector<FlagOf> kAll = {FlagOf::kConfigured,  FlagOf::kTrain,     FlagOf::kComputing,
                                  FlagOf::kCollectives, FlagOf::kTransport, FlagOf::kKernels};

// As typed: "--tf32", "--nccl-ctas 1".
std::vector<std::string> typed(const test::ListedOption& option) {
  const std::string name = flag_name(option.key);
  if (option.value == "true") return {name};
  const bool quoted = option.value.starts_with('"');
  return {name, quoted ? option.value.substr(1, option.value.size() - 2) : option.value};
}

void parse(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
}

std::vector<test::ListedOption> with_flags() {
  std::vector<test::ListedOption> options = test::ListedOptions::all();
  std::erase_if(options, [](const auto& option) { return option.field.flag_of == FlagOf::kNone; });
  return options;
}

TEST_CASE("every flag of a command without a configuration sets its member, and nothing else") {
  int launch = 0;
  for (const test::ListedOption& option : with_flags()) {
    CAPTURE(option.key);
    CLI::App app;
    config::TrainConfig config;
    add_listed_flags(Command(&app), {option.field.flag_of}, config.runtime.launch);
    if (app.get_options().size() == 1) continue;  // --help: no launch option
    ++launch;
    parse(app, typed(option));
    CHECK(config::to_yaml(config) == config::to_yaml(option.changed));
  }
  CHECK(launch >= 8);
}

TEST_CASE("every flag of train is an override of its key, and quoted as it was typed") {
  const std::vector<test::ListedOption> options = with_flags();
  CHECK(options.size() >= 12);
  for (const test::ListedOption& option : options) {
    CAPTURE(option.key);
    CLI::App app;
    std::deque<KeyFlag> flags;
    add_listed_flags(Command(&app), kAll, flags);
    CHECK(flags.size() == options.size());
    parse(app, typed(option));
    std::vector<config::Override> given;
    for (const KeyFlag& flag : flags) {
      for (const config::Override& each : overrides_of(flag)) given.push_back(each);
    }
    REQUIRE(given.size() == 1);
    CHECK(given[0].typed == fmt::format("{}", fmt::join(typed(option), " ")));
    CHECK(config::to_yaml(config::parse_config("", "", given)) == config::to_yaml(option.changed));
  }
}

TEST_CASE("a flag that is given twice, and a switch with a value") {
  CLI::App app;
  std::deque<KeyFlag> flags;
  add_listed_flags(Command(&app), {FlagOf::kConfigured, FlagOf::kTrain}, flags);
  parse(app, {"--lr", "1e-3", "--trace=false", "--lr", "2"});
  std::vector<config::Override> given;
  for (const KeyFlag& flag : flags) {
    for (const config::Override& each : overrides_of(flag)) given.push_back(each);
  }
  REQUIRE(given.size() == 3);
  CHECK(given[2].text == "runtime.trace=false");
  CHECK(given[2].typed == "--trace=false");
  CHECK(test::error_of([&] { config::parse_config("", "", given); }) ==
        "train.lr: given twice, with different values: --lr 1e-3 and --lr 2");
}

std::string help_of(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "fsdp");
  arguments.push_back("--help");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data()).message;
}

TEST_CASE("the help of every command has its flags, and no others") {
  const auto check = [](const std::vector<const char*>& command, const std::vector<FlagOf>& which) {
    CAPTURE(command.back());
    const std::string whole = help_of(command);
    const std::string help = whole.substr(0, whole.find("Keys of the file"));
    for (const test::ListedOption& option : with_flags()) {
      CAPTURE(option.key);
      const bool expected =
          std::find(which.begin(), which.end(), option.field.flag_of) != which.end();
      const bool there = test::contains(help, option.help);
      CHECK(there == expected);
      if (expected) CHECK(test::contains(help, "\n  " + flag_name(option.key) + " "));
    }
  };
  using enum FlagOf;
  check({"train"}, kAll);
  check({"explain"}, {kConfigured});
  for (const auto& command : {std::vector<const char*>{"eval"},
                              {"generate"},
                              {"verify"},
                              {"bench", "step"},
                              {"bench", "sharding"}}) {
    check(command, {kComputing, kCollectives, kTransport, kKernels});
  }
  check({"bench", "comm"}, {kComputing, kCollectives});
  check({"bench", "kernels"}, {kComputing, kKernels});
  check({"convert"}, {});
}

}  // namespace
}  // namespace fsdp::tools
