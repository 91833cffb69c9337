// What a command line leads to, without running it.
#include "tools/commands/command_line.h"

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

CommandLine parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "fsdp");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

TEST_CASE("command line: a command is found and not run yet") {
  const CommandLine line = parse({"train", "--config", "/nowhere.yaml", "--set", "train.steps=1",
                                  "--set", "train.lr=1", "--local-ranks", "2"});
  CHECK(line.command);
  CHECK(line.message.empty());
}

TEST_CASE("command line: help and mistakes") {
  const CommandLine help = parse({"--help"});
  CHECK(!help.command);
  CHECK(help.status == 0);
  for (const char* name : {"train", "generate", "eval", "verify", "bench", "explain", "compare"}) {
    CHECK(test::contains(help.message, name));
  }
  const std::string train = parse({"train", "--help"}).message;
  CHECK(test::contains(train, "--config"));
  CHECK(test::contains(train, "sequence_length"));
  for (const auto& wrong : {std::vector<const char*>{},
                            {"walk"},
                            {"train", "--local-ranks", "0"},
                            {"train", "--confg", "x"}}) {
    const CommandLine line = parse(wrong);
    CHECK(!line.command);
    CHECK(line.status == 2);
    CHECK(!line.message.empty());
    CHECK(!test::contains(line.message, "\n"));
  }
}

TEST_CASE("command line: numbers that are none, in a short message") {
  for (const char* value : {"nan", "inf", "-1", "1e999", "x", "-inf", ""}) {
    for (const auto& command : {std::vector<const char*>{"verify", "f", "--tolerance", value},
                                {"generate", "f", "--seed", value},
                                {"generate", "f", "--temperature", value}}) {
      const CommandLine line = parse(command);
      CAPTURE(value);
      CHECK(line.status == 2);
      CHECK(line.message.size() < 120);
      CHECK(test::contains(line.message, command[2]));
    }
  }
  CHECK(parse({"verify", "f", "--tolerance", "1e-3"}).command);
  CHECK(parse({"generate", "f", "--temperature", "0"}).command);
  CHECK(parse({"bench", "comm", "--min-bytes", "64KiB", "--min-busbw"}).command);
  for (const auto& command : {std::vector<const char*>{"generate", "f", "--tokens", "0"},
                              {"generate", "f", "--top-k", "-1"},
                              {"bench", "step", "--batch", "0"},
                              {"bench", "kernels", "--seconds", "0"},
                              {"bench", "kernels", "--tolerance", "5"},
                              {"bench", "kernels", "--json", "--csv"},
                              {"bench", "comm", "--factor", "1"},
                              {"bench", "comm", "--dtypes", "f32,f31"},
                              {"bench", "comm", "--min-bytes", "4 apples"},
                              {"bench", "comm", "--min-busbw", "-1"},
                              {"bench", "step", "--seq", "-1"}}) {
    CHECK(parse(command).status == 2);
    CHECK(parse(command).message.size() < 160);
  }
}

TEST_CASE("command line: version, several settings after one --set, a name that is none") {
  const CommandLine version = parse({"--version"});
  CHECK(version.status == 0);
  CHECK(version.message.starts_with("fsdp "));
  CHECK(version.message.find_first_of("0123456789") == 5);
  for (const char* command : {"train", "explain"}) {
    CHECK(
        parse({command, "--set", "train.steps=1", "train.lr=1", "--set", "train.batch=2"}).command);
  }
}

TEST_CASE("command line: an option that there is not, and what was meant") {
  const auto message = [](std::vector<const char*> arguments) {
    const CommandLine line = parse(std::move(arguments));
    CHECK(line.status == 2);
    CHECK(!line.command);
    return line.message;
  };
  CHECK(message({"train", "--step", "5"}) ==
        "train: unknown option --step; the nearest option is --steps (see fsdp train --help)");
  CHECK(message({"train", "--confg=x"}) ==
        "train: unknown option --confg; the nearest option is --config (see fsdp train "
        "--help)");
  CHECK(message({"train", "--warmup", "5"}) ==
        "train: unknown option --warmup; to set the key of this name: --set "
        "train.schedule.warmup=VALUE "
        "(see fsdp train --help)");
  CHECK(message({"explain", "--train.micro-steps", "2"}) ==
        "explain: unknown option --train.micro-steps; to set the key of this name: --set "
        "train.micro_steps=VALUE (see fsdp explain --help)");
  CHECK(
      message({"generate", "m", "--steps", "5"}) ==
      "generate: unknown option --steps; the nearest option is --stats (see fsdp generate --help)");
  CHECK(message({"bench", "step", "--sequences", "5"})
            .starts_with("bench step: unknown option --sequences"));
  CHECK(message({"--steps", "5", "train"})
            .starts_with("train: unknown option --steps; --steps comes after \"train\""));
  CHECK(message({"train", "-steps", "5"}) ==
        "train: unknown option -steps; the option is --steps (see fsdp train --help)");
  CHECK(message({"train", "5"}) == "train: unexpected argument \"5\" (see fsdp train --help)");
}

TEST_CASE("command line: an option whose value was forgotten") {
  const auto message = [](std::vector<const char*> arguments) {
    const CommandLine line = parse(std::move(arguments));
    CHECK(line.status == 2);
    CHECK(!line.command);
    return line.message;
  };
  CHECK(message({"train", "--steps", "--data", "x"}) ==
        "train: --steps needs a value, but --data follows (see fsdp train --help)");
  CHECK(message({"train", "--config", "x", "--steps"}) ==
        "train: --steps needs a value (see fsdp train --help)");
  CHECK(message({"train", "--data", "--steps", "5"}) ==
        "train: --data needs a value, but --steps follows (see fsdp train --help)");
  CHECK(message({"train", "--set", "--lr=1"}) ==
        "train: --set needs a value, but --lr=1 follows (see fsdp train --help)");
  CHECK(message({"eval", "m", "--threads", "--data", "x"}) ==
        "eval: --threads needs a value, but --data follows (see fsdp eval --help)");
  CHECK(message({"bench", "step", "--batch", "--json"}) ==
        "bench step: --batch needs a value, but --json follows (see fsdp bench step --help)");
  // Options without a value, values with a dash, and a text that looks like an option.
  CHECK(parse({"train", "--trace", "--steps", "5"}).command);
  CHECK(parse({"train", "--steps", "-5"}).command);
  CHECK(parse({"bench", "comm", "--min-busbw", "--json"}).command);
  CHECK(parse({"generate", "m", "--prompt=--tokens", "--tokens", "4"}).command);
  CHECK(parse({"generate", "m", "--prompt", "--no option"}).command);
}

TEST_CASE("command line: an unknown command is named, with the known ones") {
  CHECK(parse({"walk"}).message ==
        "unknown command \"walk\"; expected train, generate, eval, verify, bench, explain, memory, "
        "compare, trace, tokenize, merge, convert, inspect");
  CHECK(parse({"bench", "walk"}).message ==
        "unknown command \"bench walk\"; expected step, sharding, kernels, comm");
  CHECK(parse({"bench"}).status == 2);
  CHECK(parse({"inspect", "walk"}).command);  // the name of a model
}

}  // namespace
}  // namespace fsdp::tools
