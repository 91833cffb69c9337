// The options by which train and explain read a configuration: what they stand for.
#include "tools/commands/config_options.h"

#include <CLI/CLI.hpp>
#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/commands/command_line.h"

namespace fsdp::tools {
namespace {

// As train would read them.
config::TrainConfig config_of(std::vector<std::string> arguments) {
  CLI::App app;
  ConfigOptions options;
  add_config_options(Command(&app), {FlagOf::kConfigured, FlagOf::kKernels}, options);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  return config::read_config(options.config, overrides_of(options));
}

std::string error_of(const std::vector<std::string>& arguments) {
  return test::error_of([&] { config_of(arguments); });
}

TEST_CASE("short forms set the keys they stand for") {
  const config::TrainConfig c = config_of({"--steps", "7", "--batch", "6", "--lr", "2e-3", "--tf32",
                                           "--data", "a.txt", "b [1], c: d.txt"});
  CHECK(c.train.steps == 7);
  CHECK(c.train.batch == 6);
  CHECK(c.train.lr == 2e-3);
  CHECK(c.runtime.launch.tf32);
  CHECK(c.data.train == std::vector<std::string>{"a.txt", "b [1], c: d.txt"});
  CHECK(config_of({"--data", "a.txt"}).data.train == std::vector<std::string>{"a.txt"});
  CHECK(config_of({"--model", "gpt2-124m"}).model.preset == "gpt2-124m");
  CHECK(config::to_yaml(config_of({})) == config::to_yaml({}));
}

TEST_CASE("short forms count more than the file, and not more than --set") {
  const test::TempFolder folder;
  const std::string file = folder.write("x.yaml", "train: {steps: 9, batch: 3}\n");
  const config::TrainConfig c = config_of({"--config", file, "--steps", "7"});
  CHECK(c.train.steps == 7);
  CHECK(c.train.batch == 3);
  CHECK(config_of({"--set", "train.steps=9", "--lr", "1"}).train.steps == 9);
  CHECK(config_of({"--set", "train.steps=9", "--steps", "9"}).train.steps == 9);
  CHECK(error_of({"--steps", "7", "--set", "train.steps=9"}) ==
        "train.steps: given twice, with different values: --set train.steps=9 and --steps 7");
  CHECK(error_of({"--tf32", "--set", "runtime.tf32=false"}) ==
        "runtime.tf32: given twice, with different values: --set runtime.tf32=false and --tf32");
  CHECK(error_of({"--data", "a", "b", "--set", "data.train=a"}) ==
        "data.train: given twice, with different values: --set data.train=a and --data a b");
  CHECK(error_of({"--model", "gpt2-124m", "--model", "gpt2-355m"}) ==
        "model.preset: given twice, with different values: --model gpt2-124m and --model "
        "gpt2-355m");
}

TEST_CASE("values and models that are none, as they were typed") {
  CHECK(error_of({"--steps", "x"}) == "--steps x: train.steps: expected an integer, got \"x\"");
  CHECK(error_of({"--attention", "x"}) ==
        "--attention x: runtime.attention: expected auto or cudnn or own, got \"x\"");
  CHECK(error_of({"--set", "train.steps=x"}) ==
        "--set train.steps=x: train.steps: expected an integer, got \"x\"");
  CHECK(test::contains(error_of({"--model", "nosuch"}), "nosuch"));
  CHECK(error_of({"--model", "gpt2-124m", "--set", "model.path=a"}) ==
        "--model gpt2-124m: model.preset: expected nothing beside model.path, got \"gpt2-124m\"");
}

TEST_CASE("an empty value is refused") {
  for (const char* option : {"--model", "--steps", "--batch", "--lr", "--backend"}) {
    const char* const arguments[] = {"fsdp", "train", option, ""};
    const CommandLine line = parse_command_line(std::size(arguments), arguments);
    CHECK(line.status == 2);
    CHECK(test::contains(line.message, "expected a value, got an empty text"));
    CHECK(test::contains(line.message, option));
  }
}

TEST_CASE("train and explain take them") {
  for (const char* command : {"train", "explain"}) {
    const char* const arguments[] = {"fsdp",  command, "--steps",     "7",      "--batch",
                                     "2",     "--lr",  "1e-3",        "--data", "a.txt",
                                     "b.txt", "--set", "train.seed=1"};
    CHECK(parse_command_line(std::size(arguments), arguments).command);
  }
}

}  // namespace
}  // namespace fsdp::tools
