// Lines of metrics.jsonl that a run which goes on keeps.
#include "tools/checkpoint/kept_lines.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("kept lines: metrics are cut behind the checkpoint, without gaps and doubles") {
  const std::string text =
      "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n{\"step\":2,\"validation_loss\":1}\n"
      "{\"step\":2,\"loss\":2}\n{\"st\n{\"step\":3,\"loss\":1}\n{\"step\":4,\"lo";
  CHECK(metrics_until(text, 3, 2, {.every = 1}).text ==
        "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n{\"step\":2,\"validation_loss\":1}\n"
        "{\"step\":3,\"loss\":1}\n");
  CHECK(metrics_until(text, 1, 1, {.every = 1}).text == "{\"step\":1,\"loss\":1}\n");
  CHECK(metrics_until(text, 0, 0, {.every = 1}).text == "");
  // A run that was stopped after step 3 has a line of it; one that nobody stops, with a line every
  // two steps, does not.
  CHECK(metrics_until(text, 3, 2, {.every = 2}).text ==
        "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n{\"step\":2,\"validation_loss\":1}\n");
  CHECK(metrics_until(text, 2, 2, {.every = 2}).text ==
        metrics_until(text, 2, 2, {.every = 1}).text);
  CHECK(metrics_until(text, 1, 1, {.every = 2}).text == "{\"step\":1,\"loss\":1}\n");
  // The evaluation after step 2 was not part of the checkpoint, and comes again.
  CHECK(!test::contains(metrics_until(text, 2, 1, {.every = 1}).text, "validation_loss"));
}

// Of the lines of such steps none is written again.
TEST_CASE("kept lines: the last line is also that of the last step, or of one that is not finite") {
  const std::string before = "{\"step\":1,\"loss\":1,\"grad_norm\":1}\n";
  const auto kept = [&](const std::string& values, int64_t total) {
    const std::string last = "{\"step\":25," + values + "}\n";
    const KeptLines lines = metrics_until(before + last, 25, 0, {.every = 10, .total = total});
    CHECK((lines.text == before || lines.text == before + last));
    return lines.text != before;
  };
  CHECK(kept("\"loss\":1,\"grad_norm\":1", 25));
  CHECK(!kept("\"loss\":1,\"grad_norm\":1", 50));
  CHECK(kept("\"loss\":null,\"grad_norm\":1", 50));
  CHECK(kept("\"loss\":1,\"grad_norm\":null", 50));
}

}  // namespace
}  // namespace fsdp::tools
