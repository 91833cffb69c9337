// The whole page: its parts, its size, names that mean harm, where it may be written.
#include "tools/page/page.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/page_runs.h"
#include "tests/support/plan_questions.h"
#include "tools/plan/plan_report.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

Json data_of(const std::string& html) {
  const std::string begin = "id=\"data\">";
  const size_t at = html.find(begin) + begin.size();
  return Json::parse(html.substr(at, html.find("</script>", at) - at));
}

TEST_CASE("page: the data of runs, a script that shows it, and nothing from elsewhere") {
  const test::TempFolder folder;
  const auto a = test::ended_run(folder, "a", test::page_config("full_shard"));
  const auto b = test::begun_run(folder, "b", test::page_config("no_shard"));
  test::add_trace(a);
  const std::string html = page_html(read_report({a, b}), 2000);
  CHECK(data_of(html)["runs"].size() == 2);
  CHECK(test::contains(html, "layout.page(data)"));
  CHECK(test::contains(html, "<noscript><p>This page needs JavaScript"));
  CHECK(test::contains(html, "default-src 'none'"));
  CHECK(test::contains(html, "https://github.com/leeoniya/uPlot (v1.6.32)"));  // its notice
  for (const char* fetched : {" src=", "<link", "@import", "url(http"})
    CHECK(!test::contains(html, fetched));
}

TEST_CASE("page: a run whose name is HTML is a name") {
  const test::TempFolder folder;
  const auto run = test::ended_run(folder, "<b>&\"'", test::page_config("full_shard"));
  const std::string html = page_html(read_report({run, folder / "<b>&\"'"}), 2000);
  CHECK(!test::contains(html.substr(0, html.find("<script>")), "<b>"));
  CHECK(test::contains(html, "<title>&lt;b&gt;&amp;&quot;'"));
}

TEST_CASE("page: below 2 MB for the most runs, with many settings and long steps") {
  const test::TempFolder folder;
  const auto path = test::ended_run(folder, "a", test::page_config("full_shard"));
  test::add_trace(path);
  RunsReport report = read_report({path});
  RunView& run = report.runs[0];
  for (int64_t i = 4; i <= 3000; ++i) {
    for (Curve& curve : run.log.curves) curve.points.push_back({i, 1 / static_cast<double>(i), 0});
  }
  for (int i = 0; i < 150; ++i) run.settings[fmt::format("section.key{}", i)] = "a value";
  for (int64_t i = 0; i < 5000; ++i) {
    const int64_t begin = run.step.begin_ns + i * 2000;
    run.step.events.push_back({"all_gather", fmt::format("blocks.{}", i % 900), "gather", begin,
                               begin, begin + 1200, 1, i});
    run.step.samples.push_back({"activation", i % 13, begin, i});
  }
  for (int i = 0; i < 500; ++i) run.units += "a row of a unit\n";
  report.runs.assign(kMostRuns, report.runs[0]);
  const std::string html = page_html(report, 2000);
  CHECK(html.size() < 2'000'000);
  const Json runs = data_of(html)["runs"];
  CHECK(runs[0]["step"].contains("memory"));
  CHECK(runs[0]["step"]["more_collectives"].get<int>() > 0);
  CHECK(runs[0]["more_units"] == true);
  CHECK(runs.back()["step"]["memory_left_out"] == true);
  CHECK(!runs.back()["step"].contains("svg"));
}

TEST_CASE("page: a sweep, its table, its runs, and runs that are too many") {
  const test::TempFolder folder;
  std::string rows;
  for (int i = 1; i <= 42; ++i) {
    const std::string name = fmt::format("ranks={}", i);
    fs::create_directories(folder / name / "run1");
    folder.write(name + "/run1/config.yaml", "x: 1\n");
    folder.write(name + "/run1/run_args.json", "{}");
    rows += fmt::format(
        R"({}{{"case": "{}", "status": "ran", "ranks": {}, "median": {{"speed_up": {}}}}})",
        i == 1 ? "" : ",", name, i, i);
  }
  folder.write("table.json", "[" + rows + "]");
  const RunsReport report = read_report({folder.path()});
  CHECK(report.runs.size() == kMostRuns);
  CHECK(report.runs[0].name == "ranks=1");
  CHECK(report.left_out ==
        std::vector<fs::path>{folder / "ranks=41/run1", folder / "ranks=42/run1"});
  const Json data = data_of(page_html(report, 0));
  CHECK(data["sweeps"][0]["table"].size() == 42);
  CHECK(data["left_out"].size() == 2);
  CHECK(test::contains(
      test::error_of([&] { read_report(std::vector<fs::path>(41, folder / "ranks=1/run1")); }),
      "at most 40 run directories, got 41"));
}

TEST_CASE("page: a plan, and files that are none") {
  Plan plan = {.question = test::plan_question({}), .model = "a <model>"};
  plan.found.best = plan_each(plan.question, {1, 2});
  const test::TempFolder folder;
  const auto file = folder.write("plan.json", plan_json(plan).dump());
  const std::string html = page_html(read_report({file}), 0);
  CHECK(test::contains(html, "<title>plan</title>"));
  const Json shown = data_of(html)["plans"][0];
  CHECK(shown["plan"]["model"] == "a <model>");
  CHECK(shown["svg"].text().starts_with("<svg "));
  const auto error = [&](const char* text) {
    folder.write("plan.json", text);
    return test::error_of([&] { read_report({file}); });
  };
  CHECK(test::contains(error("{}"), "plan.json: expected a folder of a run or a sweep, or what"));
  CHECK(test::contains(error("[1]"), "plan.json: expected a folder"));
  CHECK(test::contains(error(R"({"plan": 1})"), "plan.json: is no plan of this version: "));
  CHECK(test::contains(error("no JSON"), "plan.json"));
  const auto with = [&](auto&& change) {
    Json other = plan_json(plan);
    change(other);
    return error(other.dump().c_str());
  };
  for (const std::string& each :
       {with([](Json& j) { j["notes"] = Json(); }), with([](Json& j) { j["rows"] = "text"; }),
        with([](Json& j) { j["scaling"] = Json(Json::Array{Json::object()}); })})
    CHECK(test::contains(each, "plan.json: is no plan of this version: "));
}

TEST_CASE("page: the first run of each case of a sweep, its settings, and what is no table") {
  const test::TempFolder folder;
  test::begun_run(folder, "a/run1", test::page_config("full_shard"));
  test::begun_run(folder, "a/run2", test::page_config("full_shard"));
  folder.write("a/case.yaml", "# ranks: 2\ntrain: {batch: 8}\n");
  const auto read = [&](const char* table) {
    folder.write("table.json", table);
    return read_report({folder.path()}).sweeps[0];
  };
  const SweepView view =
      read(R"([{"case": "a", "status": "ran"}, {"case": "b", "status": "failed"}])");
  CHECK(view.runs == std::vector<fs::path>{folder / "a/run1"});
  CHECK(view.ends.at(folder / "a/run1").empty());
  CHECK(view.settings.at("a").at("train.batch") == "8");
  const auto error = [&](const char* table) { return test::error_of([&] { read(table); }); };
  CHECK(
      test::contains(error("[1]"), "table.json: expected an object with \"case\" and \"status\""));
  CHECK(test::contains(error("{}"), "table.json: expected a list of cases, got object"));
}

TEST_CASE("page: it is written over a page of ours, and over nothing else") {
  const test::TempFolder folder;
  const auto run = test::begun_run(folder, "a", test::page_config("full_shard"));
  check_page_path(folder / "new.html");
  check_page_path(folder.write("page.html", page_html(read_report({run}), 0)));
  const auto error = [&](const fs::path& path) {
    return test::error_of([&] { check_page_path(path); });
  };
  CHECK(test::contains(error(run), "a: is a folder; expected the name of a file"));
  CHECK(
      test::contains(error(folder.write("x", "short")), "x: exists already and is not a page of"));
  CHECK(test::contains(
      error(folder.write("x", "<!DOCTYPE html>\n<html></html>" + std::string(100, ' '))),
      "not a page of fsdp report; give another name"));
}

}  // namespace
}  // namespace fsdp::tools
