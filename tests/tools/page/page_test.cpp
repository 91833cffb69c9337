// The whole page: its parts, its size, names that mean harm, where it may be written.
#include "tools/page/page.h"

#include <doctest/doctest.h>

#include "tests/support/page_runs.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

TEST_CASE("page: every part is there, also of a run that has not ended") {
  const test::TempFolder folder;
  const auto a = test::ended_run(folder, "a", test::page_config("full_shard"));
  const auto b = test::begun_run(folder, "b", test::page_config("no_shard"));
  test::add_trace(a);
  for (const auto& folders : {std::vector<fs::path>{a, b}, {a}, {b}}) {
    const std::string html = page_html(read_report(folders), 2000);
    for (const char* id :
         {"outcome", "curves", "memory", "timeline", "units", "collectives", "costs", "settings"}) {
      CHECK(test::contains(html, fmt::format("<section id=\"{}\">", id)));
    }
    CHECK(!test::contains(html, "<section id=\"sweep\">"));
    CHECK(test::contains(html, "default-src 'none'"));
    CHECK(test::contains(html, "https://github.com/leeoniya/uPlot (v1.6.32)"));  // its notice
    for (const char* fetched : {" src=", "<link", "@import", "url(http"})
      CHECK(!test::contains(html, fetched));
  }
}

TEST_CASE("page: a run whose name is HTML is a name") {
  const test::TempFolder folder;
  const auto run = test::ended_run(folder, "<b>&\"'", test::page_config("full_shard"));
  const std::string html = page_html(read_report({run, folder / "<b>&\"'"}), 2000);
  CHECK(!test::contains(html, "<b>"));
  CHECK(test::contains(html, "<title>&lt;b&gt;&amp;&quot;'"));
}

TEST_CASE("page: below 2 MB for the most runs, with many settings and long steps") {
  const test::TempFolder folder;
  const auto path = test::ended_run(folder, "a", test::page_config("full_shard"));
  test::add_trace(path);
  Report report = read_report({path});
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
  CHECK(test::contains(html, "is left out: the page would become too large"));
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
  const Report report = read_report({folder.path()});
  CHECK(report.runs.size() == kMostRuns);
  CHECK(report.runs[0].name == "ranks=1");
  CHECK(report.left_out ==
        std::vector<fs::path>{folder / "ranks=41/run1", folder / "ranks=42/run1"});
  const std::string html = page_html(report, 0);
  CHECK(test::contains(html, "<section id=\"sweep\">"));
  CHECK(test::contains(html, "data-sweep=\"0\""));
  CHECK(test::contains(html, "2 runs are left out: a page has at most 40"));
  folder.write("table.json", "[]");
  CHECK(
      test::contains(page_html(read_report({folder.path()}), 0), "No run of the sweep has begun."));
  CHECK(test::contains(
      test::error_of([&] { read_report(std::vector<fs::path>(41, folder / "ranks=1/run1")); }),
      "at most 40 run directories, got 41"));
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
  CHECK(test::contains(error(folder.write("x", "short")), "x: is there already, and no page of"));
  CHECK(test::contains(
      error(folder.write("x", "<!DOCTYPE html>\n<html></html>" + std::string(100, ' '))),
      "no page of fsdp report; give another name"));
}

}  // namespace
}  // namespace fsdp::tools
