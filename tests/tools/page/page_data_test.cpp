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
  const Json json = Json::parse(script_text(page_data({.runs = {run}}, 2000)));
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

TEST_CASE("page data: steps without a number, lines of others, what a run lacks") {
  const test::TempFolder folder;
  const auto path = test::begun_run(folder, "a", test::page_config("full_shard"));
  MetricsLog(path / "metrics.jsonl").step({.totals = {.steps = 4}, .loss = NAN, .grad_norm = 2});
  RunView run = read_run_view(path);
  run.log.foreign = 2;
  const Json data = page_data({.runs = {run}}, 1012);
  const Json& shown = data["runs"][0];
  CHECK(shown["curves"]["loss"]["not_finite"] == Json::array({4}));
  CHECK(shown["curves"]["loss"]["points"] == 3);
  CHECK(shown["curves"]["peak_memory_bytes"]["step"] == Json::array({4}));
  CHECK(shown["foreign"] == 2);
  CHECK(shown["state"] == run.state(1012));
  CHECK(shown["metrics"].is_null());
  CHECK(shown["progress"]["restarts"] == 1);
  CHECK(shown["step"].is_null());
  CHECK(shown["no_step"] == "train with --trace");
  CHECK(shown["settings"]["train.lr"] == "0.001");
}

TEST_CASE("page data: the last step of a trace") {
  const test::TempFolder folder;
  const auto path = test::ended_run(folder, "a", test::page_config("full_shard"));
  test::add_trace(path);
  const Json data = page_data(read_report({path}), 2000);
  const Json& step = data["runs"][0]["step"];
  CHECK(step["number"] == 2);
  CHECK(step["steps"] == 2);
  CHECK(step["ns"] == 10'000'000);
  CHECK(step["phases"].dump() == R"([["forward",0,5000000]])");
  CHECK(step["memory"].dump() ==
        R"({"categories":["activation"],"moments":[[0,512],[0,512],[2000000,3145728],)"
        R"([2000000,3145728],[3000000,1048576],[3000000,1048576]]})");
  CHECK(step["collectives"].dump() == R"([["blocks.0","all_gather",1,64,2000000,2000000]])");
  CHECK(step["more_collectives"] == 0);
  CHECK(test::contains(step["svg"].text(), ">Rank 0, step 2<"));
}

TEST_CASE("page data: many samples take no more room than the pixels, and keep a short peak") {
  StepTimeline step = {.step = 3, .begin_ns = 100'000'000, .end_ns = 200'000'000};
  for (int64_t i = 0; i < 200'000; ++i)
    step.samples.push_back({"activation", i == 777 ? 9000 : i % 7 * 1000, 100'000'000 + i * 500});
  const Json moments = memory_json(step)["moments"];
  CHECK(moments.size() < 2000);
  int64_t most = 0;
  for (const Json& moment : moments) most = std::max(most, moment[1].get<int64_t>());
  CHECK(most == 9000);
  step.samples.clear();
  CHECK(memory_json(step).is_null());
}

TEST_CASE("page data: a long run has fewer points, which is said") {
  const test::TempFolder folder;
  RunView run = read_run_view(test::begun_run(folder, "a", test::page_config("full_shard")));
  for (int64_t i = 4; i <= 100'000; ++i)
    run.log.curves[0].points.push_back({i, i == 777 ? 0.125 : 1 + 1 / static_cast<double>(i), 0});
  const Json json = page_data({.runs = {run}}, 2000);
  const Json& loss = json["runs"][0]["curves"]["loss"];
  CHECK(loss["step"].size() <= 1000);
  bool has_lowest = false;
  for (const Json& value : loss["value"]) has_lowest = has_lowest || value == 0.125;
  CHECK(has_lowest);
  CHECK(json.dump().size() < 80'000);
  CHECK(loss["points"] == 100'000);
  CHECK(page_data({.runs = {run}}, 0)["most_points"] == 1000);
  CHECK(page_data({.runs = std::vector<RunView>(40, run)}, 0)["most_points"] == 120);
}

}  // namespace
}  // namespace fsdp::tools
