// The files of numbers that a run leaves.
#include "tools/report/metrics.h"

#include <limits>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("metrics: a line per step or evaluation, there at once") {
  const test::TempFolder folder;
  MetricsLog log(folder / "metrics.jsonl");
  log.step({.step = 1, .loss = 2.5, .grad_norm = std::numeric_limits<double>::quiet_NaN()});
  log.evaluation(1, 2.25);
  const std::string text = read_file(folder / "metrics.jsonl");
  const size_t end = text.find('\n');
  const Json step = parse_json(text.substr(0, end), "first line");
  CHECK(step.at("step") == 1);
  CHECK(step.at("loss") == 2.5);
  CHECK(step.at("grad_norm").is_null());
  const Json evaluation = parse_json(text.substr(end + 1), "second line");
  CHECK(evaluation.at("validation_loss") == 2.25);
}

TEST_CASE("metrics: without a path nothing is written; a path that cannot be is an Error") {
  MetricsLog silent;
  silent.step({.step = 1});
  const test::TempFolder folder;
  CHECK(test::contains(test::error_of([&] { MetricsLog log(folder / "missing/metrics.jsonl"); }),
                       "missing/metrics.jsonl: cannot be written"));
}

TEST_CASE("metrics: the summary") {
  const test::TempFolder folder;
  RunSummary summary;
  summary.world_size = 2;
  summary.true_tokens = 1000;
  summary.step_time_s = 4;
  summary.memory.predictable_peak = 77;
  summary.memory.peak[static_cast<size_t>(MemoryCategory::kTransportStaging)] = 5;
  summary.predicted_memory.predictable_peak = 78;
  summary.memory.peak[static_cast<size_t>(MemoryCategory::kGradient)] = 11;
  summary.collectives["all_gather"] = {.calls = 3, .bytes = 96};
  write_summary(folder / "metrics.json", summary);
  const Json json = read_json_file(folder / "metrics.json");
  CHECK(json.at("tokens_per_s") == 250);
  CHECK(json.at("tokens_per_s_per_rank") == 125);
  CHECK(json.at("validation_loss").is_null());
  const Json& memory = json.at("memory");
  CHECK(memory.at("ledger").at("total") == 77);
  CHECK(memory.at("ledger").at("by_category").at("gradient") == 11);
  CHECK(memory.at("ledger").at("by_category").at("transport staging") == 5);
  CHECK(memory.at("predicted").at("total") == 78);
  CHECK(memory.at("predicted").at("by_category").size() == kMemoryCategories - 1);
  CHECK(json.at("collectives").at("all_gather").at("bytes") == 96);
  CHECK(json.at("communication").is_null());
  summary.overlap = CommunicationOverlap{
      .by_kind = {{"all_gather", {.time_ns = 5'000'000, .exposed_ns = 2'000'000}}},
      .compute_ns = 1'000'000'000,
      .exposed_ns = 2'000'000};
  write_summary(folder / "metrics.json", summary);
  const Json communication = read_json_file(folder / "metrics.json").at("communication");
  CHECK(communication.at("exposed_s") == 0.002);
  CHECK(communication.at("compute_s") == 1);
  CHECK(communication.at("by_kind").at("all_gather").at("time_s") == 0.005);
  for (const char* key : {"wall_time_s", "true_tokens", "world_size", "strategy", "dtype", "model",
                          "train_loss", "rss_growth_bytes"}) {
    CHECK(json.contains(key));
  }
}

}  // namespace
}  // namespace fsdp::tools
