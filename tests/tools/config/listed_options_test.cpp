// A walk over the list of options: each is read, written, kept in its range and shown in the help.
// Compared between ranks: config_to_session_test.cpp. Flags: listed_flags_test.cpp.
#include "tests/support/listed_options.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/config/key_values.h"

namespace fsdp::config {
namespace {

std::string refusal(const std::string& override) {
  return test::error_of([&] { parse_config("", "", {override}); });
}

TEST_CASE("every listed option is written, and read back or refused by its name") {
  const auto defaults = key_values({});
  int read = 0;
  const std::vector<test::ListedOption> options = test::ListedOptions::all();
  CHECK(options.size() + 2 == defaults.size());  // data.sources and fsdp.units are lists
  for (const test::ListedOption& option : options) {
    CAPTURE(option.key);
    const auto values = key_values(option.changed);
    for (size_t i = 0; i < values.size(); ++i) {
      CHECK((values[i] != defaults[i]) == (values[i].first == option.key));
      if (values[i].first == option.key) CHECK(values[i].second == option.value);
    }
    const std::string name = option.key.substr(option.key.rfind('.') + 1);
    CHECK(test::contains(to_yaml(option.changed), name + ": " + option.value + "\n"));

    const std::string given = option.key + "=" + option.value;
    const std::string error = refusal(given);  // of an option that needs another one
    if (!error.empty()) {
      CAPTURE(error);
      // Its own error, or that of the one that is missing.
      CHECK((error.starts_with("--set " + given + ": ") ||
             test::contains(error, name + ": " + option.value)));
      continue;
    }
    ++read;
    CHECK(to_yaml(parse_config("", "", {given})) == to_yaml(option.changed));
    CHECK(to_yaml(parse_config(to_yaml(option.changed), "x", {})) == to_yaml(option.changed));
  }
  CHECK(read > 80);
}

TEST_CASE("every listed option is in the help, with all of its own values") {
  const std::string help = config_help();
  for (const test::ListedOption& option : test::ListedOptions::all()) {
    CAPTURE(option.key);
    const size_t line = help.find("\n  " + option.key + " ");
    REQUIRE(line != std::string::npos);
    const std::string text = help.substr(line + 1, help.find('\n', line + 1) - line - 1);
    CHECK(test::contains(text, option.help));
    for (const std::string value : option.field.values) CHECK(test::contains(text, value));
  }
}

TEST_CASE("a value outside of the listed ones is refused") {
  int ranges = 0, choices = 0;
  for (const test::ListedOption& option : test::ListedOptions::all()) {
    CAPTURE(option.key);
    const tools::Range& range = option.field.range;
    const auto refused = [&](double value) {
      const std::string given = fmt::format("{}={}", option.key, value);
      const std::string error = refusal(given);
      const std::string start = fmt::format("--set {}: {}: expected ", given, option.key);
      CAPTURE(error);
      CHECK(error.starts_with(start));
      const std::string range_text = error.substr(std::min(start.size(), error.size()));
      const bool closed = !range.above && !range.or_none;
      const char* const ends = range.most < tools::Range::kNoEnd ? "a number from " : "at least ";
      if (closed) CHECK(range_text.starts_with(ends));
      if (range.above) CHECK(test::contains(range_text, "positive") == !std::isfinite(range.most));
    };
    if (std::isfinite(range.least)) refused(range.least - 1), ++ranges;
    if (std::isfinite(range.least) && range.above) refused(range.least);
    if (std::isfinite(range.most) && range.most < 1e30) refused(range.most + 1);
    if (range.below) refused(range.most);
    if (option.field.values.empty()) continue;
    ++choices;
    CHECK(refusal(option.key + "=x") == fmt::format("--set {0}=x: {0}: expected {1}, got \"x\"",
                                                    option.key,
                                                    fmt::join(option.field.values, " or ")));
  }
  CHECK(ranges > 60);
  CHECK(choices >= 4);
}

TEST_CASE("two values for one key: of two --set the last counts, a flag beside --set is refused") {
  const auto read = [](const std::vector<Override>& overrides) {
    return parse_config("train: {lr: 3}", "x.yaml", overrides);
  };
  const auto note = [&](const std::vector<Override>& overrides) {
    const std::vector<std::string> notes = read(overrides).notes;
    REQUIRE(notes.size() <= 1);
    return notes.empty() ? "" : notes[0];
  };
  CHECK(test::error_of([&] {
          read({"train.lr=1e-4", Override("train.lr=1e-3", "--lr 1e-3")});
        }) == "train.lr: given twice, with different values: --set train.lr=1e-4 and --lr 1e-3");
  CHECK(read({"train.lr=1", "train.lr=2"}).train.lr == 2);
  CHECK(note({"train.lr=1", "train.lr=2"}) ==
        "train.lr: --set train.lr=2 counts, and not --set train.lr=1");
  // Under another name, within a section, and as a list.
  CHECK(read({"train.steps=1", "train.max_steps=2"}).train.steps == 2);
  CHECK(note({"train.steps=1", "train.max_steps=2"}) ==
        "train.steps: --set train.max_steps=2 counts, and not --set train.steps=1");
  CHECK(note({"train={steps: 3, lr: 1}", "train.steps=4"}) ==
        "train.steps: --set train.steps=4 counts, and not --set train={steps: 3, lr: 1}");
  CHECK(read({"fsdp.units=[{match: a, reduce_dtype: f32}]", "fsdp.units=[]"})
            .fsdp.options.units.empty());
  // Equal ones, however they are written; and a value of the file.
  CHECK(note({"train.lr=1e-3", "train.lr=0.001", "train={lr: 1.0e-3}"}) == "");
  CHECK(note({"data.train=a", "data.train=[a]"}) == "");
  const TrainConfig thrice = read({"train.lr=1", "train.lr=2", "train.lr=1"});
  CHECK(thrice.train.lr == 1);
  CHECK(thrice.places.at("train.lr") == "--set train.lr=1");
  CHECK(parse_config("train: {lr: 3}", "", {"train.lr=2", "train.lr=2.0"}).train.lr == 2);
}

TEST_CASE("errors that are found later quote what was typed") {
  const auto typed = [](const Override& override) {
    return test::error_of([&] { parse_config("", "", {override}); });
  };
  CHECK(typed({"train.steps=many", "--steps many"}) ==
        "--steps many: train.steps: expected an integer, got \"many\"");
  CHECK(typed({"train.steps=0", "--steps 0"}) ==
        "--steps 0: train.steps: expected at least 1, got 0");
  CHECK(typed("train.steps=0") == "--set train.steps=0: train.steps: expected at least 1, got 0");
  CHECK(typed("train") == "--set train: expected key=value");
}

}  // namespace
}  // namespace fsdp::config
