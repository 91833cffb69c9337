// The JSON of the page: values as the run's files have them, and texts that cannot leave it.
#include "tools/page/page_data.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/page_runs.h"
#include "tools/report/metrics_line.h"

namespace fsdp::tools {
namespace {

TEST_CASE("page data: curves and metrics are those of the files") {
  const test::TempFolder folder;
  const auto folder_of_run = test::ended_run(folder, "a", test::page_config("full_shard"));
  const RunView run = read_run_view(folder_of_run);
  const Json json = Json::parse(script_text(page_data({run}, {})));
  const Json& shown = json["runs"][0];
  CHECK(shown["name"] == "a");
  CHECK(shown["metrics"] == read_json_file(folder_of_run / "metrics.json"));
  size_t at = 0;
  const std::string text = read_file(folder_of_run / "metrics.jsonl");
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    const auto line =
        MetricsLine::read(std::string_view(text).substr(begin, text.find('\n', begin) - begin));
    REQUIRE(line);
    if (line->is_evaluation()) continue;
    for (const char* key : {"loss", "grad_norm", "learning_rate", "tokens_per_s"}) {
      CHECK(shown["curves"][key]["step"][at] == line->step());
      CHECK(shown["curves"][key]["value"][at] == *line->number(key));
    }
    ++at;
  }
  CHECK(at == 3);
  CHECK(shown["curves"]["loss"]["step"].size() == 3);
  CHECK(shown["curves"]["validation_loss"]["value"] == Json::array({1.5}));
}

TEST_CASE("page data: no text ends the script element") {
  const Json json = {{"a", "</script><b>&\"\\\n\u00e4"}, {"b", "bytes \xff"}};
  const std::string text = script_text(json);
  CHECK(text.find('<') == text.npos);
  CHECK(Json::parse(text)["a"] == json["a"]);
}

TEST_CASE("page data: curves, their ends, and steps without a number") {
  const test::TempFolder folder;
  const auto path = test::begun_run(folder, "a", test::page_config("full_shard"));
  MetricsLog(path / "metrics.jsonl").step({.totals = {.steps = 4}, .loss = NAN, .grad_norm = 2});
  const RunView run = read_run_view(path);
  const std::string html = curves_html({run});
  CAPTURE(html);
  CHECK(test::contains(html, "data-keys=\"loss validation_loss\""));
  CHECK(test::contains(html, "training loss is not finite at step 4."));
  CHECK(test::contains(html,
                       "<th>training loss</th><td class=\"number\" title=\"3\">3</td>"
                       "<td class=\"number\" title=\"1.75\">1.75 <small>step 1</small>"));
  CHECK(!test::contains(html, "points of a curve are drawn"));
  RunView empty = run;
  empty.log.foreign = 2;
  CHECK(test::contains(curves_html({empty}),
                       "a: lines of metrics.jsonl that no run has written whole: 2"));
  empty.log.foreign = 0;
  for (Curve& curve : empty.log.curves) curve.points.clear(), curve.not_finite.clear();
  CHECK(curves_html({empty}) == "<p class=\"note\">No curves: nothing has been logged yet.</p>\n");
}

TEST_CASE("page data: a long run has fewer points, which is said") {
  const test::TempFolder folder;
  RunView run = read_run_view(test::begun_run(folder, "a", test::page_config("full_shard")));
  for (int64_t i = 4; i <= 100'000; ++i)
    run.log.curves[0].points.push_back({i, i == 777 ? 0.125 : 1 + 1 / static_cast<double>(i), 0});
  const Json json = page_data({run}, {});
  const Json& loss = json["runs"][0]["curves"]["loss"];
  CHECK(loss["step"].size() <= 1000);
  bool has_lowest = false;
  for (const Json& value : loss["value"]) has_lowest = has_lowest || value == 0.125;
  CHECK(has_lowest);
  CHECK(json.dump().size() < 60'000);
  CHECK(test::contains(curves_html({run}), "At most 1000 points of a curve are drawn"));
  CHECK(test::contains(curves_html({run, run}), "At most 1000 points"));
  CHECK(test::contains(curves_html(std::vector<RunView>(40, run)), "At most 120 points"));
}

}  // namespace
}  // namespace fsdp::tools
