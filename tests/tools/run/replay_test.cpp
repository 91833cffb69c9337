// Which steps can be replayed, and what was recorded of them. Whole replays: tests/e2e/replay.sh.
#include "tools/run/replay.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {

TEST_CASE("replay: the recorded steps; evaluations and values that are not finite are none") {
  const auto steps = recorded_steps(
      "{\"step\":1,\"loss\":0.1,\"grad_norm\":1e-9}\n"
      "{\"step\":1,\"validation_loss\":3.0,\"best_validation_loss\":3.0}\n"
      "{\"step\":2,\"loss\":null,\"grad_norm\":1.0}\n"
      "{\"step\":3,\"loss\":0.30000000000000004,\"grad_norm\":2.5}\n",
      "metrics.jsonl");
  REQUIRE(steps.size() == 2);
  CHECK(steps.at(1).loss == 0.1);
  CHECK(steps.at(1).grad_norm == 1e-9);
  CHECK(steps.at(3).loss == 0.1 + 0.2);  // to the bit
  CHECK(test::contains(test::error_of([] { recorded_steps("{}\n{\"step\"", "m.jsonl"); }),
                       "m.jsonl:2"));
}

TEST_CASE("replay: what is no run, or has no checkpoint, is said") {
  const test::TempFolder folder;
  const auto error = [&] { return test::error_of([&] { plan_replay(folder.path(), 3); }); };
  CHECK(test::contains(error(), "no config.yaml in it"));
  write_file_atomically(folder / "config.yaml", "{}\n");
  CHECK(test::contains(error(), "no metrics.jsonl"));
  write_file_atomically(folder / "metrics.jsonl", "");
  CHECK(test::contains(error(), "no checkpoint in it (checkpoint.every)"));
}

}  // namespace fsdp::tools
