// What a command line leads to, without running it.
// Requirements: S2.3.
#include "tools/commands/command_line.h"

#include <sstream>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

CommandLine parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "fsdp");
  std::vector<const char*> texts;
  for (const std::string& argument : arguments) texts.push_back(argument.c_str());
  return parse_command_line(static_cast<int>(texts.size()), texts.data());
}
// With blanks between the arguments.
CommandLine parse(const std::string& line) {
  std::istringstream words(line);
  return parse(std::vector<std::string>(std::istream_iterator<std::string>(words), {}));
}

// Command lines and what is said about each; "...": and more behind it.
struct Mistake {
  const char *line, *message;
};
void check_mistakes(const std::vector<Mistake>& mistakes) {
  for (const auto& [line, message] : mistakes) {
    CAPTURE(line);
    const CommandLine parsed = parse(line);
    CHECK(parsed.status == 2);
    CHECK(!parsed.command);
    const std::string expected = message;
    if (expected.ends_with("...")) {
      CHECK(parsed.message.starts_with(expected.substr(0, expected.size() - 3)));
    } else {
      CHECK(parsed.message == expected);
    }
  }
}

TEST_CASE("command line: a command is found and not run yet") {
  const CommandLine line =
      parse("train --config /nowhere.yaml --set train.steps=1 --set train.lr=1 --local-ranks 2");
  CHECK(line.command);
  CHECK(line.message.empty());
}

TEST_CASE("command line: help and mistakes") {
  const CommandLine help = parse("--help");
  CHECK(!help.command);
  CHECK(help.status == 0);
  for (const char* name : {"train", "generate", "eval", "verify", "bench", "explain", "compare"}) {
    CHECK(test::contains(help.message, name));
  }
  const std::string train = parse("train --help").message;
  CHECK(test::contains(train, "--config"));
  CHECK(test::contains(train, "sequence_length"));
  CHECK(test::contains(train, "a larger one: fewer, larger units"));  // S2.3
  for (const char* wrong : {"", "walk", "train --local-ranks 0", "train --confg x"}) {
    const CommandLine line = parse(wrong);
    CHECK(!line.command);
    CHECK(line.status == 2);
    CHECK(!line.message.empty());
    CHECK(!test::contains(line.message, "\n"));
  }
}

TEST_CASE("command line: numbers that are none, in a short message") {
  for (const char* value : {"nan", "inf", "-1", "1e999", "x", "-inf", ""}) {
    for (const char* command :
         {"verify f --tolerance", "generate f --seed", "generate f --temperature"}) {
      std::istringstream words(command);
      std::vector<std::string> arguments(std::istream_iterator<std::string>(words), {});
      arguments.emplace_back(value);
      const CommandLine line = parse(arguments);
      CAPTURE(value);
      CHECK(line.status == 2);
      CHECK(line.message.size() < 120);
      CHECK(test::contains(line.message, arguments[2]));
    }
  }
  CHECK(parse("verify f --tolerance 1e-3").command);
  CHECK(parse("generate f --temperature 0").command);
  CHECK(parse("bench comm --min-bytes 64KiB --min-busbw").command);
  CHECK(parse({"bench", "comm", "--min-bytes", "4 apples"}).status == 2);
  for (const char* command :
       {"generate f --tokens 0", "generate f --top-k -1", "bench step --batch 0",
        "bench kernels --seconds 0", "bench kernels --tolerance 5", "bench kernels --json --csv",
        "bench kernels --documents=", "bench comm --factor 1", "bench comm --dtypes f32,f31",
        "bench comm --min-bytes 4apples", "bench comm --min-busbw -1", "bench step --seq -1"}) {
    CAPTURE(command);
    CHECK(parse(command).status == 2);
    CHECK(parse(command).message.size() < 160);
  }
}

TEST_CASE("command line: version, several settings after one --set, a name that is none") {
  const CommandLine version = parse("--version");
  CHECK(version.status == 0);
  CHECK(version.message.starts_with("fsdp "));
  CHECK(version.message.find_first_of("0123456789") == 5);
  CHECK(parse("train --set train.steps=1 train.lr=1 --set train.batch=2").command);
  CHECK(parse("explain --set train.steps=1 train.lr=1 --set train.batch=2").command);
}

TEST_CASE("command line: an option that there is not, and what was meant") {
  check_mistakes(
      {{"train --step 5",
        "train: unknown option --step; the nearest option is --steps (see fsdp train --help)"},
       {"train --confg=x",
        "train: unknown option --confg; the nearest option is --config (see fsdp train --help)"},
       {"train --warmup 5",
        "train: unknown option --warmup; to set the key of this name: --set "
        "train.schedule.warmup=VALUE (see fsdp train --help)"},
       {"explain --train.micro-steps 2",
        "explain: unknown option --train.micro-steps; to set the key of this name: --set "
        "train.micro_steps=VALUE (see fsdp explain --help)"},
       {"generate m --steps 5",
        "generate: unknown option --steps; the nearest option is --stats (see fsdp generate "
        "--help)"},
       {"bench step --sequences 5", "bench step: unknown option --sequences..."},
       {"--steps 5 train", "train: unknown option --steps; --steps comes after \"train\"..."},
       {"train -steps 5",
        "train: unknown option -steps; the option is --steps (see fsdp train --help)"},
       {"train 5", "train: unexpected argument \"5\" (see fsdp train --help)"}});
}

TEST_CASE("command line: an option whose value was forgotten") {
  check_mistakes(
      {{"train --steps --data x",
        "train: --steps needs a value, but --data follows (see fsdp train --help)"},
       {"train --config x --steps", "train: --steps needs a value (see fsdp train --help)"},
       {"train --data --steps 5",
        "train: --data needs a value, but --steps follows (see fsdp train --help)"},
       {"generate m --ids= --tokens 3",
        "generate: --ids needs a value; an empty text is --ids \"\" (see fsdp generate --help)"},
       {"train --set --lr=1",
        "train: --set needs a value, but --lr=1 follows (see fsdp train --help)"},
       {"eval m --threads --data x",
        "eval: --threads needs a value, but --data follows (see fsdp eval --help)"},
       {"bench step --batch --json",
        "bench step: --batch needs a value, but --json follows (see fsdp bench step --help)"}});
  // Options without a value, values with a dash, and a text that looks like an option.
  for (const char* line :
       {"train --trace --steps 5", "train --steps -5", "bench comm --min-busbw --json",
        "generate m --prompt=--tokens --tokens 4"}) {
    CAPTURE(line);
    CHECK(parse(line).command);
  }
  CHECK(parse({"generate", "m", "--prompt", "--no option"}).command);
}

TEST_CASE("command line: mistakes are said in this program's words") {
  check_mistakes(
      {{"inspect", "inspect: model: missing (see fsdp inspect --help)"},
       {"train --local-ranks 0",
        "train: --local-ranks: expected an integer from 1 to 1024, got 0 (see fsdp train --help)"},
       {"generate m --dtype int8",
        "generate: --dtype: expected f64, f32, bf16, f16, got int8 (see fsdp generate --help)"},
       {"generate m --seed 99999999999999999999",
        "generate: --seed: expected an integer from 0 to 9223372036854775807, got "
        "99999999999999999999 (see fsdp generate --help)"},
       {"verify m --strategy no_shard --shard-size x",
        "verify: --shard-size: expected a number of at most 64 bits, got x (see fsdp verify "
        "--help)"},
       {"bench comm --min-bytes 4apples",
        "bench comm: --min-bytes: expected a size such as 64KiB or 16MB, got 4apples (see fsdp "
        "bench comm --help)"},
       {"compare a", "compare: runs: expected at least 2 values, got 1 (see fsdp compare --help)"},
       {"generate m --stats=3",
        "generate: --stats: expected no value after a flag (see fsdp generate --help)"},
       {"bench",
        "bench: expected a command: step, init, sharding, kernels, comm (see fsdp bench --help)"},
       {"--foo", "expected a command: train, generate, ..."},
       {"trian", "unknown command \"trian\"; the nearest is train"},
       {"generate m --tokens 3 --tokens 4",
        "generate: --tokens: expected one value, got 2 (see fsdp generate --help)"},
       {"walk",
        "unknown command \"walk\"; expected train, generate, eval, verify, bench, explain, memory, "
        "plan, sweep, compare, trace, report, status, data, tokenize, merge, convert, inspect, "
        "replay, "
        "adopt, launch, doctor"},
       {"bench walk",
        "unknown command \"bench walk\"; expected step, init, sharding, kernels, comm"}});
  CHECK(parse("inspect walk").command);  // the name of a model
}

TEST_CASE("command line: help as a command") {
  const CommandLine of_train = parse("help train");
  CHECK(of_train.status == 0);
  CHECK(of_train.message == parse("train --help").message);
  CHECK(parse("help").message == parse("--help").message);
  CHECK(parse("help trian").message == "unknown command \"trian\"; the nearest is train");
}

TEST_CASE("command line: another program's arguments are no options of adopt") {
  for (const char* line :
       {"adopt fairseq -- fairseq-train data --fp16 --lr 1 --help",
        "adopt chess -- --no_fsdp --learning_rate 1e-4", "adopt chess --literal -- --no_fsdp",
        "adopt hf args.json --hf-compat --ranks-per-node 8", "adopt env --literal"}) {
    CAPTURE(line);
    CHECK(parse(line).command);
  }
  check_mistakes(
      {{"adopt chess --no_fsdp",
        "adopt chess: unknown option --no_fsdp (see fsdp adopt chess --help)"},
       {"adopt env env_vars.sh", "adopt env: file: a shell evaluates such a file: (set -a; ..."},
       {"adopt hf", "adopt hf: file: missing (see fsdp adopt hf --help)"},
       {"adopt hf a --fp16", "adopt hf: unknown option --fp16..."}});
}

TEST_CASE("command line: every option of commands.json belongs to a command") {
  std::string all_help;
  const Json sections = Json::parse(commands_json());
  const auto check = [](const Json& section, const std::string& help) {
    const Json options = section.value("options", Json::object());
    for (const auto& [option, about] : options.items()) {
      CAPTURE(option);
      CHECK(test::contains(help, "\n  " + option + " "));
    }
  };
  for (const auto& [name, section] : sections.items()) {
    if (name.starts_with('@')) continue;
    CAPTURE(name);
    const std::string help = parse("help " + name).message;
    check(section, help);
    all_help += help;
  }
  for (const auto& [name, section] : sections.items()) check(section, all_help);
}

}  // namespace
}  // namespace fsdp::tools
