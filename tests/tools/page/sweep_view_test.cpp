// The table of a sweep and its scaling: series of cases, the ideal line, what is no table.
#include "tools/page/sweep_view.h"

#include <doctest/doctest.h>

#include "tests/support/page_runs.h"

namespace fsdp::tools {
namespace {

std::string row(const std::string& name, int ranks, const std::string& median,
                const std::string& more = "") {
  return fmt::format(
      R"({{"case": "{}", "status": "ran", "reason": "", "ranks": {}, "values": {{}}, )"
      R"("median": {{{}}}, "spread": {{"tokens_per_s": 1.5}}{}}})",
      name, ranks, median, more);
}

SweepView view_of(const test::TempFolder& folder, const std::string& rows) {
  folder.write("table.json", "[" + rows + "]");
  return read_sweep_view(folder.path());
}

TEST_CASE("sweep view: cases that differ in ranks alone are a series, beside the ideal") {
  const test::TempFolder folder;
  const SweepView view = view_of(
      folder, row("strategy=a,ranks=2", 2, R"("speed_up": 1.8)") + "," +
                  row("strategy=a,ranks=1", 1, R"("speed_up": 1)") + "," +
                  row("strategy=b,ranks=4", 4, R"("speed_up": 3)") + "," +
                  row("strategy=b,ranks=8", 8, R"("speed_up": 3)", R"(, "oversubscribed": true)"));
  REQUIRE(view.scaling.size() == 2);
  CHECK(view.scaling[0].name == "strategy=a");
  REQUIRE(view.scaling[0].points.size() == 2);
  CHECK(view.scaling[0].points[0].name == "strategy=a,ranks=1");
  CHECK(view.scaling[0].points[1].speed_up == 1.8);
  CHECK(view.scaling[1].points.size() == 1);  // without the one that had no cores
  CHECK(view.ideal == 1);
}

TEST_CASE("sweep view: without a speed-up, tokens beside those of the fewest ranks") {
  const test::TempFolder folder;
  const SweepView view = view_of(folder, row("F-B-2G1N", 2, R"("tokens_per_s": 100)") + "," +
                                             row("F-B-16G1N", 16, R"("tokens_per_s": 500)"));
  REQUIRE(view.scaling.size() == 1);
  CHECK(view.scaling[0].name == "F-B-2G1N to F-B-16G1N");
  CHECK(view.scaling[0].points[1].speed_up == 5);
  CHECK(view.ideal == 0.5);
  CHECK(view_of(folder, row("a", 2, R"("tokens_per_s": 1)")).scaling.empty());
  CHECK(view_of(folder, row("a", 2, "") + "," + row("b", 4, "")).scaling.empty());
  CHECK(view_of(folder, "").scaling.empty());
}

TEST_CASE("sweep view: configurations say which cases are a series, not their names") {
  const test::TempFolder folder;
  std::string rows;
  const auto add = [&](const std::string& name, int ranks, const std::string& settings) {
    std::filesystem::create_directories(folder / name);
    folder.write(name + "/case.yaml", fmt::format("# ranks: {}\n{}", ranks, settings));
    rows += (rows.empty() ? "" : ",") + row(name, ranks, R"("speed_up": 1)");
  };
  add("1-rank", 1, "train: {batch: 8, rows: 1}");
  add("2-ranks", 2, "train: {batch: 16, rows: 1}");
  add("1-rank-with-the-rows-of-2", 1, "train: {batch: 8, rows: 2}");
  add("1-rank-with-the-rows-of-8", 1, "train: {batch: 8, rows: 8}");
  add("batch=8,ranks=1", 1, "train: {batch: 8}");  // the batch does not follow the ranks
  add("batch=8,ranks=2", 2, "train: {batch: 8}");
  add("batch=16,ranks=1", 1, "train: {batch: 16}");
  add("4G1N", 4, "lr: 1");
  add("4G2N", 4, "lr: 1");  // no difference at all
  std::vector<std::string> names;
  for (const ScalingSeries& series : view_of(folder, rows).scaling) names.push_back(series.name);
  CHECK(names == std::vector<std::string>{"1-rank to 2-ranks", "1-rank-with-the-rows-of-2",
                                          "1-rank-with-the-rows-of-8", "batch=8", "batch=16",
                                          "4G1N", "4G2N"});
  add("4G2N", 4, "lr: 1");  // of two tables, one behind the other: the name says nothing either
  CHECK(view_of(folder, rows).scaling.back().points.size() == 2);
}

TEST_CASE("sweep view: the first run of each case, and what is no table") {
  const test::TempFolder folder;
  test::begun_run(folder, "a/run1", test::page_config("full_shard"));
  test::begun_run(folder, "a/run2", test::page_config("full_shard"));
  const SweepView view = view_of(folder, row("a", 2, "") + "," + row("b", 2, ""));
  CHECK(view.runs == std::vector<std::filesystem::path>{folder / "a/run1"});
  CHECK(view.ends.at(folder / "a/run1").empty());
  const auto error = [&](const std::string& rows) {
    return test::error_of([&] { view_of(folder, rows); });
  };
  CHECK(test::contains(error("1"), "table.json: expected an object with \"case\" and \"status\""));
  folder.write("table.json", "{}");
  CHECK(test::contains(test::error_of([&] { read_sweep_view(folder.path()); }),
                       "table.json: expected a list of cases, got object"));
}

}  // namespace
}  // namespace fsdp::tools
