// Run directories read for the page: of runs that have ended, that go on, that died; and others.
#include "tools/page/run_view.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/page_runs.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

TEST_CASE("run view: a run that has ended") {
  const test::TempFolder folder;
  const fs::path run = test::ended_run(folder, "a", test::page_config("full_shard"));
  const RunView view = read_run_view(run);
  CHECK(view.name == "a");
  CHECK(view.settings.at("train.lr") == "0.001");
  CHECK(view.metrics == read_json_file(run / "metrics.json"));
  CHECK(view.ranks() == 2);
  CHECK(view.started() == 1767323045);  // 03:04:05 UTC
  CHECK(view.state(1e9) == "ended: done");
  CHECK(view.call() == "fsdp train --config 'my run.yaml' --local-ranks 2 --set train.lr=0.001");
  CHECK(view.no_units == "");
  CHECK(test::contains(view.units, "gpt2, 2 layers"));
  CHECK(test::contains(view.units, "full_shard on 2 ranks"));
  CHECK(test::contains(view.units, "blocks.0 .. blocks.1"));
  CHECK(view.no_step == "train with --trace");
  CHECK(view.step.step == 0);
}

TEST_CASE("run view: a run that has ended in an error") {
  const test::TempFolder folder;
  const fs::path run = test::begun_run(folder, "a", test::page_config("full_shard"));
  leave_end_note(run, {.status = 76, .cause = "step 12: the loss is not finite"});
  CHECK(read_run_view(run).state(1e9) == "ended with status 76: step 12: the loss is not finite");
  // Another start of it.
  fs::last_write_time(run / kEndNote, fs::last_write_time(run / kEndNote) - std::chrono::hours(1));
  const FileLock lock(run / "run.lock", "process 7 on a since noon");
  CHECK(test::contains(read_run_view(run).state(unix_time()), "running: step 3 of 9"));
}

TEST_CASE("run view: a timeline's last step with its memory") {
  const test::TempFolder folder;
  const fs::path run = test::ended_run(folder, "a", test::page_config("no_shard"));
  test::add_trace(run);
  const RunView view = read_run_view(run);
  CHECK(view.no_step == "");
  CHECK(view.step.step == 2);
  CHECK(view.step.events.size() == 4);
  CHECK(view.step.samples.size() == 3);
  folder.write("a/trace.rank0.json", "[]");
  CHECK(read_run_view(run).no_step == "trace.rank0.json has no training step");
}

TEST_CASE("run view: a run that goes on, or died, has what is there") {
  const test::TempFolder folder;
  const fs::path run = test::begun_run(folder, "a", test::page_config("full_shard"));
  RunView view = read_run_view(run);
  CHECK(!view.has_ended());
  CHECK(view.ranks() == 2);
  const std::string step =
      "step 3 of 9 finished, at 1970-01-01 00:16:40 UTC, 12 s before this page was made";
  CHECK(view.state(1012) == "running: " + step);
  view.end_in_sweep = "failed: status 9: why";  // which a run that died has not written itself
  CHECK(view.state(1012) == "running: " + step);
  CHECK(view.state(unix_time() + 100) == "failed: status 9: why");
  view.end_in_sweep = "";
  CHECK(test::contains(view.state(unix_time() + 100), "killed: step 3 of 9 finished, at 1970"));
  {
    const FileLock lock(run / "run.lock", "process 7 on a since noon");
    folder.write("a/progress.json", read_file(run / "progress.json"));
    CHECK(test::contains(view.state(unix_time() + 100), "hung: step 3 of 9 finished"));
  }
  CHECK(!view.units.empty());
  fs::remove(run / "metrics.jsonl");
  folder.write("a/progress.json", "{\"seen\": 10");  // half of it
  CHECK(read_run_view(run).state(0) == "running: no finished step is known");
  folder.write("a/config.yaml", test::page_config("full_shard") + "runtime: {trace: true}\n");
  CHECK(test::contains(read_run_view(run).no_step, "at its end, which it has not come to"));
}

TEST_CASE("run view: what this program does not know of a configuration is one line") {
  const test::TempFolder folder;
  const fs::path run = test::ended_run(folder, "a", "model: {layrs: 3}\n");
  const RunView view = read_run_view(run);
  CHECK(view.settings.at("model.layrs") == "3");
  CHECK(test::contains(view.no_units, "layrs"));
  CHECK(view.units == "");
}

TEST_CASE("run view: mistakes") {
  const test::TempFolder folder;
  fs::create_directory(folder / "empty");
  CHECK(test::contains(test::error_of([&] { read_run_view(folder / "none"); }),
                       "none: no such folder"));
  CHECK(test::contains(test::error_of([&] { read_run_view(folder / "empty"); }),
                       "empty: expected config.yaml and run_args.json, of a run, or table.json"));
  const fs::path run = test::ended_run(folder, "a", test::page_config("full_shard"));
  folder.write("a/metrics.json", "{");
  CHECK(test::contains(test::error_of([&] { read_run_view(run); }), "metrics.json:1: malformed"));
}

TEST_CASE("run view: names are the ends of paths that differ") {
  using Names = std::vector<std::string>;
  CHECK(distinct_names({"x/a", "x/b/"}) == Names{"a", "b"});
  CHECK(distinct_names({"x/a/run1", "x/b/run1"}) == Names{"a/run1", "b/run1"});
  CHECK(distinct_names({"x/a/c/run1", "y/a/c/run1"}) == Names{"x/a/c/run1", "y/a/c/run1"});
  CHECK(distinct_names({"x/a", "x/./a"}) == Names{"a", "a"});  // one run, twice
}

}  // namespace
}  // namespace fsdp::tools
