// Two run directories side by side, and folders that are none.
// Requirements: S3.10.
#include "tools/report/compare_runs.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/report/metrics.h"

namespace fsdp::tools {
namespace {

RunSummary summary(int64_t gather_bytes, size_t activation) {
  RunSummary s;
  s.world_size = 2;
  s.steps = 10;
  s.true_tokens = 1000;
  s.step_time_s = 4;
  s.train_loss = 1.5;
  s.memory.peak[static_cast<size_t>(MemoryCategory::kActivation)] = activation;
  s.collectives["all_gather"] = {.calls = 30, .bytes = gather_bytes};
  return s;
}

std::filesystem::path make_run(const test::TempFolder& parent, const std::string& name,
                               const std::string& yaml, const RunSummary& s) {
  std::filesystem::create_directory(parent / name);
  parent.write(name + "/config.yaml", yaml);
  write_summary(parent / name / "metrics.json", s);
  return parent / name;
}

TEST_CASE("run comparison: settings that differ, numbers per step with their change") {
  const test::TempFolder folder;
  const auto a = make_run(folder, "a", "fsdp: {strategy: full_shard, wrap: none}\ntrain: {lr: 1}\n",
                          summary(10 << 20, 4 << 20));
  const auto b = make_run(folder, "b", "fsdp: {strategy: no_shard, wrap: none}\ntrain: {lr: 1}\n",
                          summary(15 << 20, 1 << 20));
  const std::string text = compare_runs(a, b);
  CAPTURE(text);
  CHECK(test::contains(text, "fsdp.strategy                         full_shard      no_shard\n"));
  CHECK(!test::contains(text, "fsdp.wrap"));
  CHECK(!test::contains(text, "train.lr"));
  CHECK(test::contains(
      text, "all_gather                                 1.000         1.500     +50.0 %"));
  CHECK(test::contains(text, "all_gather                                  3.00          3.00"));
  CHECK(test::contains(
      text, "activation                                  4.00          1.00     -75.0 %"));
  CHECK(test::contains(text, "tokens/s                                     250           250"));
  CHECK(!test::contains(text, "validation loss"));
  CHECK(test::contains(text, "only known of runs with runtime.trace"));
  CHECK(test::contains(compare_runs(a, a), "the same"));
}

TEST_CASE("run comparison: exposed time of traced runs") {
  const test::TempFolder folder;
  RunSummary traced = summary(1 << 20, 0);
  traced.overlap =
      CommunicationOverlap{.by_kind = {{"all_gather", {.time_ns = 50, .exposed_ns = 40'000'000}}},
                           .compute_ns = 1'000'000'000,
                           .exposed_ns = 20'000'000};
  const auto a = make_run(folder, "a", "train: {lr: 1}\n", traced);
  const std::string text = compare_runs(a, a);
  CAPTURE(text);
  CHECK(test::contains(text, "all_gather                                 4.000         4.000"));
  CHECK(test::contains(text, "not hidden by compute: ms per step, evaluations included\n"));
  CHECK(test::contains(text, "each moment once                           2.000         2.000"));
  CHECK(!test::contains(text, "only known of runs"));
}

TEST_CASE("run comparison: what is not the directory of a run") {
  const test::TempFolder folder;
  const auto run = make_run(folder, "run", "train: {lr: 1}\n", summary(1, 1));
  const auto error = [&](const std::filesystem::path& other) {
    return test::error_of([&] { compare_runs(run, other); });
  };
  CHECK(test::contains(error(folder / "missing"), "missing: no such folder"));
  std::filesystem::create_directory(folder / "other");
  CHECK(test::contains(error(folder / "other"), "other: has no config.yaml: not the directory"));
  folder.write("other/config.yaml", "a: [1");
  CHECK(test::contains(error(folder / "other"), "other: has no metrics.json"));
  folder.write("other/metrics.json", "{");
  CHECK(test::contains(error(folder / "other"), "config.yaml: "));
  folder.write("other/config.yaml", "a: 1");
  CHECK(test::contains(error(folder / "other"), "metrics.json"));
}

}  // namespace
}  // namespace fsdp::tools
