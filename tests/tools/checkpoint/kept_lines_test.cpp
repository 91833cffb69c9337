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
  CHECK(metrics_until(text, 3, 2, 1).text ==
        "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n{\"step\":2,\"validation_loss\":1}\n"
        "{\"step\":3,\"loss\":1}\n");
  CHECK(metrics_until(text, 1, 1, 1).text == "{\"step\":1,\"loss\":1}\n");
  CHECK(metrics_until(text, 0, 0, 1).text == "");
  // A run that was stopped after step 3 has a line of it; one that nobody stops, with a line every
  // two steps, does not.
  CHECK(metrics_until(text, 3, 2, 2).text ==
        "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n{\"step\":2,\"validation_loss\":1}\n");
  CHECK(metrics_until(text, 2, 2, 2).text == metrics_until(text, 2, 2, 1).text);
  CHECK(metrics_until(text, 1, 1, 2).text == "{\"step\":1,\"loss\":1}\n");
  // The evaluation after step 2 was not part of the checkpoint, and comes again.
  CHECK(!test::contains(metrics_until(text, 2, 1, 1).text, "validation_loss"));
}

}  // namespace
}  // namespace fsdp::tools
