// Reading a recipe: keys, places, mistakes, values of the command line.
#include "tools/sweep/recipe.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

Recipe parsed(const std::string& yaml) { return parse_recipe(yaml, "dir/r.yaml"); }

std::string refusal(const std::string& yaml) {
  return test::error_of([&] { parsed(yaml); });
}

TEST_CASE("recipe: every key, with the places of the configuration's keys") {
  const Recipe recipe = parsed(R"(question: why?
include: [a.yaml, b.yaml]
set:
  train.steps: 20
  train: {lr: 1e-4, freeze: [a, "b c"]}
ranks: 2
repeat: 3
grid:
  fsdp.strategy: [no_shard, full_shard]
  data.train: [[a, b], c]
columns: [s_per_step, /steps]
baseline: x
full_size: {set: {model.preset: bloom-560m}, ranks: 8, gpu: V100-16}
evaluate: [--task, squad]
)");
  CHECK(recipe.question == "why?");
  CHECK(recipe.name() == "r");
  CHECK(recipe.include == std::vector<std::string>{"a.yaml", "b.yaml"});
  CHECK(recipe.set.size() == 3);
  CHECK(recipe.set.at("train.steps").value == "20");
  CHECK(recipe.set.at("train.steps").place == "dir/r.yaml:4");
  CHECK(recipe.set.at("train.lr").place == "dir/r.yaml:5");
  CHECK(recipe.set.at("train.freeze").value == "[a, b c]");
  CHECK(recipe.ranks == 2);
  CHECK(recipe.repeat == 3);
  REQUIRE(recipe.grid.size() == 2);
  CHECK(recipe.grid[0].varied.key == "fsdp.strategy");
  CHECK(recipe.grid[0].varied.values == std::vector<std::string>{"no_shard", "full_shard"});
  CHECK(recipe.grid[1].varied.values == std::vector<std::string>{"[a, b]", "c"});
  CHECK(recipe.grid[1].place == "dir/r.yaml:10");
  CHECK(recipe.columns == std::vector<std::string>{"s_per_step", "/steps"});
  CHECK(recipe.baseline == "x");
  CHECK(recipe.full_size->set.at("model.preset").value == "bloom-560m");
  CHECK(recipe.full_size->ranks == 8);
  CHECK(recipe.full_size->gpu == "V100-16");
  CHECK(recipe.evaluate == std::vector<std::string>{"--task", "squad"});
}

TEST_CASE("recipe: named cases") {
  const Recipe recipe = parsed(R"(question: why?
cases:
  F-B-1G1N:
  F-B-2G1N: {ranks: 2, train: {steps: 3}, full_size: {ranks: 4}}
)");
  REQUIRE(recipe.cases.size() == 2);
  CHECK(recipe.cases[0].name == "F-B-1G1N");
  CHECK(recipe.cases[0].keys.empty());
  CHECK(recipe.cases[1].keys.at("ranks").value == "2");
  CHECK(recipe.cases[1].keys.at("train.steps").value == "3");
  CHECK(recipe.cases[1].full_size->ranks == 4);
  CHECK(!recipe.full_size);
}

TEST_CASE("recipe: a configuration of train is one") {
  CHECK(parsed("include: a.yaml\ntrain: {lr: 1}\n").is_configuration);
  CHECK(!parsed("question: why?\ninclude: a.yaml\n").is_configuration);
}

TEST_CASE("recipe: mistakes name the line") {
  CHECK(test::contains(refusal("question: why?\nset: {runtime.run_dir: x}"),
                       "dir/r.yaml:2: runtime.run_dir: each run has a directory of its own"));
  CHECK(refusal("question: why?\ncolums: [a]") ==
        "dir/r.yaml:2: unknown key \"colums\"; the nearest is \"columns\"");
  CHECK(
      test::contains(refusal("question: why?\ntrain: {lr: 1}"),
                     "dir/r.yaml:2: unknown key \"train\"; keys of the configuration stand below"));
  CHECK(
      test::contains(refusal("include: a.yaml"), "question: expected what the experiment is for"));
  CHECK(test::contains(refusal("question: a\nquestion: b"), "r.yaml:2: key \"question\" is given"));
  CHECK(
      test::contains(refusal("question: a\ngrid: {a: [1]}\ncases: {b: }"), "either grid or cases"));
  CHECK(test::contains(refusal("question: a\ngrid: {train.lr: 1}"),
                       "r.yaml:2: grid: train.lr: expected a list of values, got 1"));
  CHECK(test::contains(refusal("question: a\nranks: 0"), "ranks: expected an integer from 1"));
  CHECK(test::contains(refusal("question: a\nrepeat: x"), "repeat: expected an integer from 1"));
  CHECK(
      test::contains(refusal("question: a\ncases: {a/b: {}}"), "cases: \"a/b\": expected letters"));
  CHECK(test::contains(refusal("question: a\ncolumns: [s_per_stp]"),
                       "r.yaml:2: columns: unknown column \"s_per_stp\""));
  CHECK(test::contains(refusal("question: a\nset: {a.b: 1, a: {b: 2}}"), "\"a.b\" is given twice"));
  CHECK(test::contains(refusal("question: a\nfull_size: {model: x}"), "unknown key \"model\""));
  CHECK(
      test::contains(refusal("question: a\nfull_size: {ranks: x}"), "r.yaml:2: full_size: ranks:"));
  CHECK(test::contains(refusal("question: a\ngrid: {}"), "expected at least one case"));
  CHECK(test::contains(refusal("question: a\ncases: {}"), "expected at least one case"));
  CHECK(test::contains(refusal("question: [a"), "r.yaml:1: malformed YAML"));
  CHECK(test::contains(refusal("- a"), "expected keys of a recipe"));
}

TEST_CASE("recipe: values of the command line become a part of the grid") {
  const test::TempFolder folder;
  const auto file = folder.write("r.yaml", "question: why?\ngrid: {train.lr: [1, 2]}\n");
  const Recipe recipe =
      read_recipe(file, {"train.lr=3,4,5", "data.train=[a, b],c", "train.steps=7", "ranks=1,2"});
  REQUIRE(recipe.grid.size() == 3);
  CHECK(recipe.grid[0].varied.values == std::vector<std::string>{"3", "4", "5"});
  CHECK(recipe.grid[1].varied.values == std::vector<std::string>{"[a, b]", "c"});
  CHECK(recipe.grid[2].varied.key == "ranks");
  CHECK(recipe.typed.at("train.steps").value == "7");
  CHECK(recipe.typed.at("train.steps").place == "--set train.steps=7");
  const auto cases = folder.write("c.yaml", "question: why?\ncases: {a: }\n");
  CHECK(test::contains(test::error_of([&] { read_recipe(cases, {"train.lr=1,2"}); }),
                       "--set train.lr=1,2: several values: the recipe has cases"));
  CHECK(test::contains(test::error_of([&] { read_recipe(cases, {"train.lr"}); }),
                       "--set train.lr: expected key=value"));
  CHECK(test::error_of([&] { read_recipe(cases, {"repeat=3"}); }) ==
        "--set repeat=3: repeat is a key of the recipe, not of --set");
}

TEST_CASE("recipe: commas in brackets and quotation marks separate nothing") {
  CHECK(split_at_commas("1,2") == std::vector<std::string>{"1", "2"});
  CHECK(split_at_commas("[a, b],{c: 1, d: 2},\"e,f\",'g,'") ==
        std::vector<std::string>{"[a, b]", "{c: 1, d: 2}", "\"e,f\"", "'g,'"});
  CHECK(split_at_commas("") == std::vector<std::string>{""});
}

}  // namespace
}  // namespace fsdp::tools
