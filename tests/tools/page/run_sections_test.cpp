// Parts about one run: memory by place, a step's streams, units, collectives, and what a run lacks.
#include "tools/page/run_sections.h"

#include <doctest/doctest.h>

#include "tests/support/page_runs.h"

namespace fsdp::tools {
namespace {

TEST_CASE("run sections: a traced run") {
  const test::TempFolder folder;
  const auto run = test::ended_run(folder, "a", test::page_config("full_shard"));
  test::add_trace(run);
  const RunView view = read_run_view(run);
  PageRoom room;
  const std::string memory = memory_html(view, room);
  CAPTURE(memory);
  CHECK(test::contains(memory, ">Memory in step 2: at most 3.00 MiB<"));
  CHECK(test::contains(memory,
                       "device, predicted</th><th class=\"number\">device, measured</th>"
                       "<th class=\"number\">host, predicted</th>"));
  CHECK(!test::contains(memory, "file, measured"));
  CHECK(test::contains(memory,
                       "<th>all at once</th><td class=\"number\" title=\"4194304 bytes\">4.00</td>"
                       "<td class=\"number\" title=\"5242880 bytes\">5.00</td>"));
  const std::string timeline = timeline_html(view, room);
  CAPTURE(timeline);
  CHECK(test::contains(timeline, ">Rank 0, step 2<"));
  CHECK(test::contains(timeline, "The last of 2 steps"));
  CHECK(test::contains(timeline, "<th>blocks.0: all_gather</th>"));
  CHECK(test::contains(timeline, "title=\"2\">2.000</td>"));  // ms, none of them hidden
  const std::string collectives = collectives_html(view);
  CAPTURE(collectives);
  CHECK(test::contains(collectives,
                       "<th>all_gather</th><td class=\"number\" title=\"30\">30</td>"
                       "<td class=\"number\" title=\"6291456 bytes\">6.00</td>"
                       "<td class=\"number\" title=\"10\">10.00</td>"
                       "<td class=\"number\" title=\"2\">2.000</td>"
                       "<td class=\"number\" title=\"2\">2.000</td>"
                       "<td class=\"number\" title=\"1\">1.000</td>"));
  CHECK(test::contains(units_html(view), "blocks.0 .. blocks.1"));
}

TEST_CASE("run sections: what a run lacks is a line, no empty box") {
  const test::TempFolder folder;
  const RunView view =
      read_run_view(test::begun_run(folder, "a", test::page_config("full_shard") + "x: 1\n"));
  PageRoom room;
  const std::string memory = memory_html(view, room);
  CHECK(test::contains(memory, "No curve over a step: train with --trace."));
  CHECK(test::contains(memory, "So far rank 0 held 5.00 MiB at the most."));
  CHECK(timeline_html(view, room) == "<p class=\"note\">No timeline: train with --trace.</p>\n");
  CHECK(test::contains(units_html(view), "<p class=\"note\">No units: "));
  CHECK(test::contains(collectives_html(view), "No collectives: "));
  for (const char* box : {"<svg", "<table", "<figure"}) {
    CHECK(!test::contains(memory + timeline_html(view, room) + collectives_html(view), box));
  }
}

TEST_CASE("run sections: a picture for which the page has no room") {
  const test::TempFolder folder;
  const auto run = test::ended_run(folder, "a", test::page_config("full_shard"));
  test::add_trace(run);
  PageRoom room = {.bytes = 100};
  const RunView view = read_run_view(run);
  CHECK(test::contains(timeline_html(view, room), "The picture of step 2 is left out"));
  CHECK(test::contains(timeline_html(view, room), "The step's collectives are left out, too."));
  CHECK(test::contains(memory_html(view, room), "is left out: the page would become too large"));
  CHECK(room.bytes == 100);
}

}  // namespace
}  // namespace fsdp::tools
