// Columns for several runs: outcome, lost time, settings, with what differs.
#include "tools/page/comparison_sections.h"

#include <doctest/doctest.h>

#include "tests/support/page_runs.h"

namespace fsdp::tools {
namespace {

std::vector<RunView> two_runs(const test::TempFolder& folder) {
  return {read_run_view(test::ended_run(folder, "a", test::page_config("full_shard"))),
          read_run_view(test::begun_run(folder, "b", test::page_config("no_shard")))};
}

TEST_CASE("comparison: outcomes, of a run that goes on too") {
  const test::TempFolder folder;
  const std::vector<RunView> runs = two_runs(folder);
  const std::string html = outcome_html(runs, 1000);
  CAPTURE(html);
  CHECK(test::contains(html, "<th>state</th><td>ended: done</td><td>running: step 3"));
  CHECK(test::contains(html, "<th>strategy</th><td>full_shard</td><td>no_shard</td>"));
  CHECK(test::contains(html,
                       "<th>training loss</th><td class=\"number\" title=\"1.25\">1.2500</td>"
                       "<td class=\"number\" title=\"1.25\">1.2500</td>"));
  CHECK(test::contains(
      html,
      "<th>tokens/s</th><td class=\"number\" title=\"100\">100</td>"
      "<td class=\"number\" title=\"103\">103</td>"));  // of another stretch: no factor
  CHECK(test::contains(outcome_html({runs[0], runs[0]}, 1000), ">100 <small>x 1.00</small></td>"));
  CHECK(test::contains(html, "title=\"5242880 bytes\">5.00</td>"));
  CHECK(!test::contains(html, "best validation loss"));  // no run has one
}

TEST_CASE("comparison: what failures cost, from progress.json where there is no metrics.json") {
  const test::TempFolder folder;
  const std::string html = costs_html(two_runs(folder));
  CAPTURE(html);
  CHECK(test::contains(html,
                       "<th>restarts</th><td class=\"number\" title=\"0\">0</td>"
                       "<td class=\"number\" title=\"1\">1</td>"));
  CHECK(test::contains(html,
                       "<th>last durable step</th><td class=\"number\" title=\"0\">0</td>"
                       "<td class=\"number\" title=\"2\">2</td>"));
  CHECK(test::contains(html, "at steps</th><td>none</td><td>none</td>"));
}

TEST_CASE("comparison: settings that differ come first and are marked") {
  const test::TempFolder folder;
  const std::vector<RunView> runs = two_runs(folder);
  const std::string html = settings_html(runs);
  CAPTURE(html);
  const std::string row =
      "<tr class=\"differs\"><th>fsdp.strategy</th><td>full_shard</td><td>no_shard</td></tr>";
  CHECK(html.find(row) < html.find("<details"));
  CHECK(html.rfind(row) > html.find("<details"));
  CHECK(test::contains(html, "<tr><th>train.lr</th><td>0.001</td><td>0.001</td></tr>"));
  CHECK(test::contains(html, "<pre>fsdp train --config 'my run.yaml'"));
  CHECK(test::contains(settings_html({runs[0], runs[0]}), "All settings are the same."));
}

}  // namespace
}  // namespace fsdp::tools
