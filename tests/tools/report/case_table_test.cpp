// The table of an experiment: medians, spreads, cases that did not run, ranks without cores.
#include "tools/report/case_table.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

FinishedRun run_of(double tokens_per_s, int ranks, const char* hash = "h") {
  return {.folder = "run",
          .settings = {},
          .metrics = {{"steps", 10},
                      {"step_time_s", 1000 / tokens_per_s},
                      {"true_tokens", 1000},
                      {"tokens_per_s", tokens_per_s},
                      {"world_size", ranks},
                      {"weights_hash", hash}}};
}

CaseTable table_of(std::vector<CaseRow> rows) {
  CaseTable table = {.columns = {}, .rows = std::move(rows), .baseline = "one"};
  for (const char* name : {"tokens_per_s", "speed_up", "efficiency", "weights_hash"}) {
    table.columns.push_back(run_column(name));
  }
  return table;
}

TEST_CASE("case table: medians with the distance of the farthest run") {
  const CaseTable table = table_of(
      {{.name = "one", .ranks = 1, .runs = {run_of(100, 1), run_of(110, 1), run_of(90, 1)}},
       {.name = "two", .ranks = 2, .runs = {run_of(160, 2), run_of(160, 2, "other")}}});
  CHECK(cell_of(table, table.rows[0], table.columns[0]) == "100 ±10");
  CHECK(cell_of(table, table.rows[1], table.columns[1]) == "1.60");
  CHECK(cell_of(table, table.rows[1], table.columns[2]) == "0.800");
  CHECK(cell_of(table, table.rows[0], table.columns[3]) == "h");
  CHECK(cell_of(table, table.rows[1], table.columns[3]) == "-");  // two hashes
  const Json json = json_of(table);
  CHECK(json.at(0).at("case") == "one");
  CHECK(json.at(0).at("status") == "ran");
  CHECK(json.at(0).at("heads").at("tokens_per_s") == "tokens/s");
  CHECK(json.at(0).at("cells").at("tokens_per_s") == "100 ±10");
  CHECK(json.at(1).at("cells").at("weights_hash") == "-");
  CHECK(json.at(0).at("values").at("tokens_per_s") == Json(std::vector<double>{100, 110, 90}));
  CHECK(json.at(0).at("median").at("tokens_per_s") == 100);
  CHECK(json.at(0).at("spread").at("tokens_per_s") == 10);
  CHECK(json.at(1).at("spread").at("speed_up") == 0);
  CHECK(text_table(table).heads == std::vector<std::string>{"case", "ranks", "tokens/s", "speed-up",
                                                            "efficiency", "hash of the weights"});
  CHECK(csv_of(table) ==
        "case,ranks,status,tokens_per_s,speed_up,efficiency,weights_hash\n"
        "one,1,ran,100.0,1.0,1.0,h\n"
        "two,2,ran,160.0,1.6,0.8,\n");
}

TEST_CASE("case table: more ranks than cores have no efficiency, and neither has the baseline") {
  CaseTable table =
      table_of({{.name = "one", .ranks = 1, .runs = {run_of(100, 1)}},
                {.name = "four", .ranks = 4, .oversubscribed = true, .runs = {run_of(120, 4)}}});
  CHECK(cell_of(table, table.rows[1], table.columns[0]) == "120");
  CHECK(cell_of(table, table.rows[1], table.columns[1]) == "-");
  CHECK(cell_of(table, table.rows[1], table.columns[2]) == "-");
  CHECK(text_table(table).rows[1].back() == "oversubscribed");
  CHECK(text_table(table).rows[0].back() == "ran");
  CHECK(test::contains(notes_of(table).at(0), "without speed-up and efficiency: four"));
  table.baseline = "four";
  CHECK(cell_of(table, table.rows[0], table.columns[1]) == "-");
}

TEST_CASE("case table: a baseline that has failed, a path that no run has") {
  CaseTable table = table_of({{.name = "one", .status = CaseStatus::kFailed, .ranks = 1},
                              {.name = "two", .ranks = 2, .runs = {run_of(160, 2)}}});
  CHECK(notes_of(table).at(0).ends_with("relative to one, which has failed"));
  table.columns = {run_column("/no/such"), run_column("/steps")};
  CHECK(notes_of(table).at(0) == "/no/such: no run has a value at this path");
  CHECK(notes_of(table).size() == 1);
}

TEST_CASE("case table: a refusal is a row with what would have fitted") {
  const CaseTable table = table_of({{.name = "one", .ranks = 1, .runs = {run_of(100, 1)}},
                                    {.name = "large",
                                     .status = CaseStatus::kRefused,
                                     .reason = "this run needs 5 MiB, the limit is 1 MiB\n"
                                               "  most is held in forward\n"
                                               "  fits with --set a=b: 1 MiB\n"
                                               "  fits with --set c=d: 1 MiB",
                                     .ranks = 1,
                                     .known = {{"tokens_per_s", 7}}},
                                    {.name = "next", .status = CaseStatus::kOpen, .ranks = 1}});
  CHECK(text_table(table).rows[1] ==
        std::vector<std::string>{"large", "1", "7", "-", "-", "-", "refused"});
  CHECK(text_table(table).rows[2].back() == "open");
  CHECK(notes_of(table).back() ==
        "large: refused: this run needs 5 MiB, the limit is 1 MiB; fits with --set a=b: 1 MiB");
  CHECK(json_of(table).at(1).at("values").at("speed_up").size() == 0);
  CHECK(json_of(table).at(1).at("median").at("speed_up").is_null());
  CHECK(test::contains(csv_of(table), "large,1,refused,7,,,\n"));
}

}  // namespace
}  // namespace fsdp::tools
