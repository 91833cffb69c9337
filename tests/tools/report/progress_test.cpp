// The text of progress lines, and which of them a file gets.
#include "tools/report/progress.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("progress: durations") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(7.4) == "0:07");
  CHECK(format_duration(59.6) == "1:00");
  CHECK(format_duration(3599) == "59:59");
  CHECK(format_duration(3 * 3600 + 4 * 60 + 5) == "3:04:05");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");
}

TEST_CASE("progress: the line") {
  // 280 steps are left.
  CHECK(format_progress({.totals = {.steps = 20, .step_time_s = 20 * 61.0 / 280},
                         .total_steps = 300,
                         .loss = 1.23456,
                         .grad_norm = 0.5,
                         .learning_rate = 3e-4,
                         .tokens_per_s = 12345.6,
                         .peak_memory_bytes = 3 << 20}) ==
        "step  20/300  loss 1.2346  grad norm 0.500  lr 3.00e-04  12,346 tokens/s  3.0 MiB  "
        "ETA 1:01");
  const double nan = std::copysign(std::numeric_limits<double>::quiet_NaN(), -1);
  CHECK(test::contains(format_progress({.total_steps = 9, .loss = nan}), "  loss nan  "));
}

TEST_CASE("progress: a file gets the first, every n-th and the last step, and notes") {
  const test::TempFolder folder;
  std::FILE* file = std::fopen((folder / "out").c_str(), "w");
  {
    RunOutput output(file);
    Progress progress(&output, -1, 3);
    for (int64_t step = 1; step <= 7; ++step)
      progress.step({.totals = {.steps = step}, .total_steps = 7});
    progress.note("note");
  }
  std::fclose(file);
  std::string firsts;
  const std::string text = read_file(folder / "out");
  for (size_t i = 0; i < text.size(); i = text.find('\n', i) + 1) firsts += text.substr(i, 6) + "|";
  CHECK(firsts == "step 1|step 3|step 6|step 7|note\n|");
  CHECK(!test::contains(text, "\r"));
}

}  // namespace
}  // namespace fsdp::tools
