// Short forms of keys: what they stand for, and that they come after --set.
#include "tools/commands/config_options.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/commands/command_line.h"
#include "tools/config/config.h"

namespace fsdp::tools {
namespace {

config::TrainConfig config_of(const ConfigOptions& options) {
  return config::read_config("", overrides_of(options));
}

TEST_CASE("short forms set the keys they stand for") {
  const config::TrainConfig c =
      config_of({.steps = "7", .batch = "6", .lr = "2e-3", .data = {"a.txt", "b [1], c: d.txt"}});
  CHECK(c.train.steps == 7);
  CHECK(c.train.batch == 6);
  CHECK(c.train.lr == 2e-3);
  CHECK(c.data.train == std::vector<std::string>{"a.txt", "b [1], c: d.txt"});
  CHECK(config_of({.data = {"a.txt"}}).data.train == std::vector<std::string>{"a.txt"});
  CHECK(overrides_of({}).empty());
}

TEST_CASE("short forms come after --set") {
  CHECK(config_of({.overrides = {"train.steps=9"}, .steps = "7"}).train.steps == 7);
  CHECK(config_of({.overrides = {"train.steps=9"}, .lr = "1"}).train.steps == 9);
}

TEST_CASE("values and models that are none") {
  CHECK(test::contains(test::error_of([] { config_of({.steps = "x"}); }),
                       "train.steps: expected an integer, got \"x\""));
  CHECK(test::contains(test::error_of([] { config_of({.model = "nosuch"}); }), "nosuch"));
}

TEST_CASE("an empty value is refused") {
  for (const char* option : {"--model", "--steps", "--batch", "--lr"}) {
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
