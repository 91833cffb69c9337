// Run directories side by side, and folders that are none.
// Requirements: S3.10.
#include "tools/report/compare_runs.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/end_note.h"
#include "tools/report/metrics.h"

namespace fsdp::tools {
namespace {

RunSummary summary(int64_t gather_bytes, size_t activation) {
  RunSummary s;
  s.world_size = 2;
  s.totals.steps = 10;
  s.totals.true_tokens = 1000;
  s.totals.step_time_s = 4;
  s.totals.recent_losses = {1.5};
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
  const std::string text = compare_runs({a, b});
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
  CHECK(test::contains(compare_runs({a, a}), "the same"));
}

TEST_CASE("run comparison: what failures and checkpoints cost") {
  const test::TempFolder folder;
  RunSummary disturbed = summary(1 << 20, 0);
  const auto whole = make_run(folder, "whole", "train: {lr: 1}\n", disturbed);
  disturbed.costs = {.restarts = 3, .lost_s = 61.25, .detection_s = 4.04, .restart_s = 9};
  const auto a = make_run(folder, "a", "train: {lr: 1}\n", disturbed);
  disturbed.costs.save_stall_s = 1, disturbed.costs.save_write_s = 8;
  const auto b = make_run(folder, "b", "train: {lr: 1}\n", disturbed);
  const std::string text = compare_runs({a, b});
  CAPTURE(text);
  CHECK(test::contains(text, "in addition to training, over all starts of a run\n"));
  CHECK(test::contains(text, "  restarts                                       3             3\n"));
  CHECK(test::contains(text, "  work done and lost (s)                      61.2          61.2\n"));
  CHECK(test::contains(text, "  until failures were noticed (s)              4.0           4.0\n"));
  CHECK(test::contains(text, "  restarts, to their first step (s)            9.0           9.0\n"));
  CHECK(test::contains(text, "  stall of saves, of their writing               -         0.125\n"));
  CHECK(!test::contains(compare_runs({whole, whole}), "in addition to training"));
}

TEST_CASE("run comparison: exposed time of traced runs") {
  const test::TempFolder folder;
  RunSummary traced = summary(1 << 20, 0);
  traced.overlap =
      CommunicationOverlap{.by_kind = {{"all_gather", {.time_ns = 50, .exposed_ns = 40'000'000}}},
                           .compute_ns = 1'000'000'000,
                           .exposed_ns = 20'000'000};
  const auto a = make_run(folder, "a", "train: {lr: 1}\n", traced);
  const std::string text = compare_runs({a, a});
  CAPTURE(text);
  CHECK(test::contains(text, "all_gather                                 4.000         4.000"));
  CHECK(test::contains(text, "not hidden by compute: ms per step, evaluations included\n"));
  CHECK(test::contains(text, "each moment once                           2.000         2.000"));
  CHECK(!test::contains(text, "only known of runs"));
}

// One rank, DDP and FSDP: memory, throughput and bytes beside factors.
TEST_CASE("run comparison: three runs, with factors to the first") {
  const test::TempFolder folder;
  RunSummary one = summary(0, 4 << 20), ddp = summary(10 << 20, 2 << 20),
             sharded = summary(15 << 20, 1 << 20);
  one.world_size = 1;
  one.collectives.clear();
  ddp.totals.step_time_s = 2.5;
  sharded.totals.step_time_s = 2;
  const auto a = make_run(folder, "one", "fsdp: {strategy: no_shard}\nx: 1\n", one);
  const auto b = make_run(folder, "ddp", "fsdp: {strategy: no_shard}\nx: 1\n", ddp);
  const auto c = make_run(folder, "fsdp", "fsdp: {strategy: full_shard}\nx: 1\n", sharded);
  const std::string text = compare_runs({a, b, c});
  CAPTURE(text);
  CHECK(text.starts_with(fmt::format("1: {}\n2: {}\n3: {}\n", a.string(), b.string(), c.string())));
  const auto row = [&](const std::string& name, const std::string& columns) {
    const auto at = text.find(fmt::format("\n  {:<34} ", name));
    REQUIRE(at != std::string::npos);
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    CHECK(line == fmt::format("  {:<34} {}", name, columns));
  };
  row("x: factor to run 1", "            1             2                       3");
  row("fsdp.strategy", "     no_shard      no_shard              full_shard");
  row("ranks", "            1             2    x 2.00             2    x 2.00");
  row("tokens/s", "          250           400    x 1.60           500    x 2.00");
  row("activation", "         4.00          2.00    x 0.50          1.00    x 0.25");
  row("all_gather", "            -          3.00                    3.00");
  CHECK(!test::contains(text, "  x  "));
  const std::string error = test::error_of([&] { compare_runs({a}); });
  CHECK(test::contains(error, "expected two run directories or more, got 1"));
}

TEST_CASE("run comparison: long names keep the columns straight, a factor to nothing is left out") {
  const test::TempFolder folder;
  RunSummary small = summary(10 << 20, 30'000), large = summary(10 << 20, 4 << 20);
  large.host.peak[static_cast<size_t>(MemoryCategory::kOptimizerState)] = 3 << 20;
  large.host.predictable_peak = 3 << 20;
  const auto a = make_run(folder, "a", "data: {train: a/path/of/any/length.txt}\n", small);
  const auto b = make_run(folder, "b", "data: {train: b.txt}\n", large);
  const std::string text = compare_runs({a, b, b});
  CAPTURE(text);
  const auto end_of = [&](const std::string& row) {
    const size_t begin = text.find("\n  " + row);
    REQUIRE(begin != std::string::npos);
    const std::string line = text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
    return line.find_first_of(' ', line.find_first_not_of(' ', 2 + row.size()));
  };
  CHECK(end_of("data.train ") == end_of("steps "));
  CHECK(end_of("data.train ") == end_of("activation "));
  CHECK(!test::contains(text, "x 139"));  // 0.03 MiB
  CHECK(test::contains(text, "offloaded, on the host: peak of rank 0 (MiB)\n  all at once") ==
        false);
  CHECK(test::contains(text, "offloaded, on the host: peak of rank 0 (MiB)\n  optimizer state"));
}

TEST_CASE("run comparison: a row for each run, with columns") {
  const test::TempFolder folder;
  RunSummary half = summary(0, 0);
  half.totals.step_time_s = 2;
  const auto a = make_run(folder, "a", "x: 1\n", summary(0, 0));
  const auto b = make_run(folder, "b", "x: 1\n", half);
  const CaseTable table = table_of_runs({a, b}, {"s_per_step", "speed_up"});
  CHECK(text_table(table).rows ==
        std::vector<std::vector<std::string>>{{a.string(), "2", "0.4000", "1.00"},
                                              {b.string(), "2", "0.2000", "2.00"}});
  CHECK(table_of_runs({a, b}, {}).columns.size() == 9);
  CHECK(test::contains(test::error_of([&] { table_of_runs({a}, {}); }), "two run directories"));
}

// As it lies there while a run goes on, or when it was killed.
TEST_CASE("run comparison: of a run that has not ended, what is known of it") {
  const test::TempFolder folder;
  const auto run = make_run(folder, "run", "train: {lr: 1}\n", summary(1 << 20, 1 << 20));
  const auto other = folder / "other";
  std::filesystem::create_directory(other);
  folder.write("other/config.yaml", "train: {lr: 2}\n");
  folder.write("other/run_args.json", R"({"world_size": 4})");
  folder.write("other/metrics.jsonl", "{\"step\":5,\"loss\":2.5,\"tokens_per_s\":300}\n");
  folder.write("other/run.lock", "process 1 on " + host_name() + " since noon");
  folder.write("other/progress.json",
               R"({"seen": 5, "step": 7, "wall_time_s": 1, "restarts": 2, "lost_s": 3})");
  const std::string text = compare_runs({run, other});
  CAPTURE(text);
  CHECK(test::contains(text, "other (killed)\n"));
  CHECK(test::contains(text, "train.lr                                       1             2\n"));
  CHECK(test::contains(text, "ranks                                          2             4\n"));
  CHECK(test::contains(text, "training loss                             1.5000        2.5000\n"));
  CHECK(test::contains(text, "steps                                         10             7\n"));
  CHECK(test::contains(text, "share of time in steps that count          1.000         0.250\n"));
  CHECK(test::contains(text, "s/step                                    0.4000        killed\n"));
  CHECK(test::contains(text, "restarts                                       0             2\n"));
  CHECK(test::contains(text, "activation                                  1.00        killed\n"));
  const CaseTable table = table_of_runs({run, other}, {"tokens_per_s", "peak_memory", "speed_up"});
  CHECK(text_table(table).rows.at(1) ==
        std::vector<std::string>{other.string(), "4", "300", "killed", "killed"});
  leave_end_note(other, {.status = 76, .cause = "the loss is not finite"});
  CHECK(test::contains(compare_runs({other, run}), "first:  " + other.string() + " (failed)\n"));
}

TEST_CASE("run comparison: what is not the directory of a run") {
  const test::TempFolder folder;
  const auto run = make_run(folder, "run", "train: {lr: 1}\n", summary(1, 1));
  const auto error = [&](const std::filesystem::path& other) {
    return test::error_of([&] { compare_runs({run, other}); });
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
