// The files of a sweep: going on with the same cases, never with others.
#include "tools/sweep/sweep_folder.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

SweepCase tiny(const std::string& name, const std::string& lr = "1e-3") {
  return {.name = name,
          .ranks = 2,
          .config = config::parse_config("data: {format: synthetic}\ntrain: {lr: " + lr + "}\n",
                                         "a.yaml", {})};
}

TEST_CASE("sweep folder: the same cases again, and one more") {
  const test::TempFolder parent;
  const SweepFolder folder(parent / "out");
  folder.settle({tiny("a")});
  folder.settle({tiny("a"), tiny("b")});
  CHECK(read_file(folder.config_of(tiny("b"))).starts_with("# ranks: 2\nmodel:\n"));
  CHECK(folder.run_of(tiny("b"), 2) == parent / "out/b/run2");
  CHECK(folder.run_of(tiny("b"), 2, kTrainLog) == parent / "out/b/run2.log");
}

TEST_CASE("sweep folder: a case that is another one now is refused before anything is written") {
  const test::TempFolder parent;
  const SweepFolder folder(parent / "out");
  folder.settle({tiny("a")});
  const auto refusal = [&](const SweepCase& changed) {
    return test::error_of([&] { folder.settle({tiny("b"), changed}); });
  };
  CHECK(test::contains(refusal(tiny("a", "2e-3")), "case a: train.lr was 0.001, and is 0.002 now"));
  SweepCase other = tiny("a");
  other.ranks = 3;
  CHECK(test::contains(refusal(other), "number of ranks has changed: 3 instead of"));
  CHECK(!is_there(folder.config_of(tiny("b"))));
  make_folders(folder.run_of(tiny("c"), 1));
  CHECK(test::contains(test::error_of([&] { folder.settle({tiny("c")}); }), "no sweep has made"));
}

TEST_CASE("sweep folder: files that no sweep has made stay as they are") {
  const test::TempFolder parent;
  make_folders(parent / "out");
  parent.write("out/table.md", "hi");
  CHECK(test::contains(test::error_of([&] { SweepFolder(parent / "out").settle({tiny("a")}); }),
                       "out: already has files, which no sweep has made"));
}

TEST_CASE("sweep folder: only a run with status 0 is done") {
  const test::TempFolder parent;
  const SweepFolder folder(parent / "out");
  const SweepCase a = tiny("a");
  folder.settle({a});
  CHECK(!folder.finished(a, 1));
  make_folders(folder.run_of(a, 1));
  parent.write("out/a/run1/config.yaml", "train: {lr: 1}\n");
  parent.write("out/a/run1/metrics.json", R"({"ended": {"status": 75}})");
  CHECK(!folder.finished(a, 1));
  parent.write("out/a/run1/metrics.json", R"({"ended": {"status": 0}})");
  REQUIRE(folder.finished(a, 1));
  parent.write("out/a/run1/metrics.json", R"({"ended": {"sta)");
  CHECK(!folder.finished(a, 1));
}

TEST_CASE("sweep folder: an evaluation counts for its own arguments") {
  const test::TempFolder parent;
  const SweepFolder folder(parent / "out");
  const SweepCase a = tiny("a");
  folder.settle({a});
  CHECK(!folder.evaluation(a, 1, {"--task", "squad"}));
  folder.keep_evaluation(a, 1, {"--task", "squad"}, parent.write("said", R"({"f1": 50.0})"));
  CHECK(!is_there(parent / "said"));
  REQUIRE(folder.evaluation(a, 1, {"--task", "squad"}));
  CHECK(folder.evaluation(a, 1, {"--task", "squad"})->at("f1") == 50);
  CHECK(!folder.evaluation(a, 1, {"--task", "squad", "--tokens", "8"}));
  parent.write("out/a/run1.eval.json", "{");
  CHECK(!folder.evaluation(a, 1, {"--task", "squad"}));
}

TEST_CASE("sweep folder: the table in three forms") {
  const test::TempFolder parent;
  const CaseTable table = {
      .columns = {run_column("steps")},
      .rows = {{.name = "a", .status = CaseStatus::kFailed, .reason = "status 1: why", .ranks = 1}},
      .baseline = "a"};
  SweepFolder(parent.path()).write_table(table, "r", "why?", "fsdp sweep r.yaml");
  CHECK(read_file(parent / "table.md") ==
        "# r\nwhy?\n\n"
        "| case | ranks | steps | status |\n"
        "|------|------:|------:|-------:|\n"
        "| a    |     1 |     - | failed |\n\n"
        "- a: failed: status 1: why\n\n"
        "```sh\nfsdp sweep r.yaml\n```\n");
  CHECK(read_file(parent / "table.csv") == "case,ranks,status,steps\na,1,failed,\n");
  CHECK(read_json_file(parent / "table.json").at(0).at("reason") == "status 1: why");
  CHECK(read_json_file(parent / "table.json").at(0).at("question") == "why?");
}

}  // namespace
}  // namespace fsdp::tools
