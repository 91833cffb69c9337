// Lines of metrics.jsonl that are read again, the end of a log, and the lines that a run which
// continues keeps.
#include "tools/report/metrics_line.h"

#include <cmath>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/report/metrics.h"

namespace fsdp::tools {
namespace {

TEST_CASE("metrics line: what a run writes is read") {
  const test::TempFolder folder;
  MetricsLog log(folder / "metrics.jsonl");
  log.step({.totals = {.steps = 7}, .loss = 2.5, .grad_norm = NAN, .learning_rate = 1.5e-7});
  log.evaluation({.step = 7, .epoch = 0.5, .loss = 3, .sequences = 9});
  const std::string text = read_file(folder / "metrics.jsonl");
  const size_t end = text.find('\n');
  const auto step = MetricsLine::read(std::string_view(text).substr(0, end));
  const auto evaluation =
      MetricsLine::read(std::string_view(text).substr(end + 1, text.size() - end - 2));
  REQUIRE(step);
  CHECK(step->step() == 7);
  CHECK(!step->is_evaluation());
  CHECK(step->text("loss") == "2.5");
  CHECK(step->text("grad_norm") == "null");
  CHECK(!step->number("grad_norm"));
  CHECK(step->number("learning_rate") == 1.5e-7);
  CHECK(step->text("no such key") == "");
  REQUIRE(evaluation);
  CHECK(evaluation->is_evaluation());
  CHECK(evaluation->number("validation_loss") == 3);
  CHECK(evaluation->text("sequences") == "9");
}

TEST_CASE("metrics line: spaces, as another program writes them") {
  const auto line = MetricsLine::read("{\"step\": 3, \"loss\": -1e-3}\r");
  REQUIRE(line);
  CHECK(line->step() == 3);
  CHECK(line->number("loss") == -1e-3);
}

TEST_CASE("metrics line: cut lines, and lines of somebody else") {
  for (const char* text :
       {"", "hello", "{", "{}", "{\"step\":1}", "{\"loss\":1}", "{\"step\":1,\"loss\":2",
        "{\"step\":1,\"loss\":}", "{\"step\":1,\"loss\":inf}", "{\"step\":1,\"loss\":-nan}",
        "{\"step\":1.5,\"loss\":2}", "{\"step\":null,\"loss\":2}", "{\"step\":1,\"loss\":\"2\"}",
        "{\"step\":1,loss:2}", "{\"step\":1,\"loss\":2}{\"step\":2,\"loss\":2}", "[1,2]",
        "{\"step\":1,\"loss\":[1,2]}"}) {
    CAPTURE(text);
    CHECK(!MetricsLine::read(text));
  }
}

TEST_CASE("metrics line: the end of a log, whatever its length") {
  const test::TempFolder folder;
  CHECK(!read_log_end(folder / "absent").step);
  std::string text;
  for (int step = 1; step <= 5000; ++step) {
    text += fmt::format("{{\"step\":{},\"loss\":2.5,\"tokens_per_s\":7,\"wall_time_s\":{}}}\n",
                        step, 0.25 * step);
  }
  const LogEnd end = read_log_end(
      folder.write("log", text + "{\"step\":5000,\"validation_loss\":3}\n{\"step\":5001,\"lo"));
  CHECK(end.step == 5000.0);
  CHECK(end.loss == 2.5);
  CHECK(end.validation_loss == 3.0);
  CHECK(end.tokens_per_s == 7.0);
  CHECK(end.steps_per_s == doctest::Approx(4));
  CHECK(!end.samples);
}

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
