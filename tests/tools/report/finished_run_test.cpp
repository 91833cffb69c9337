// A run that has ended, read back; folders that are none: compare_runs_test.cpp.
#include "tools/report/finished_run.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("finished run: settings by dotted key, metrics as they are") {
  const test::TempFolder folder;
  folder.write("config.yaml",
               "train: {lr: 1e-4, schedule: {kind: linear}}\ndata: {train: [a, b]}\n");
  folder.write("metrics.json", R"({"steps": 3, "memory": {"ledger": {"total": 7}}, "gpu": null})");
  const FinishedRun run = read_finished_run(folder.path());
  CHECK(run.settings == std::map<std::string, std::string>{{"data.train", "[a, b]"},
                                                           {"train.lr", "1e-4"},
                                                           {"train.schedule.kind", "linear"}});
  CHECK(number_at(run.metrics, "/memory/ledger/total") == 7.0);
  CHECK(!number_at(run.metrics, "/gpu"));
  CHECK(!number_at(run.metrics, "/memory/ledger"));
  CHECK(!number_at(run.metrics, "/missing"));
}

}  // namespace
}  // namespace fsdp::tools
