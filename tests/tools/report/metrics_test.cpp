// The files of numbers that a run leaves.
// Requirements: S1.19, S1.22, S3.9.
#include "tools/report/metrics.h"

#include <csignal>
#include <limits>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("metrics: a line per step or evaluation, there at once") {
  const test::TempFolder folder;
  MetricsLog log(folder / "metrics.jsonl");
  log.step(
      {.totals = {.steps = 1}, .loss = 2.5, .grad_norm = std::numeric_limits<double>::quiet_NaN()});
  log.evaluation({.step = 1, .loss = 2.25, .best_loss = 2, .sequences = 7});
  const std::string text = read_file(folder / "metrics.jsonl");
  const size_t end = text.find('\n');
  const Json step = parse_json(text.substr(0, end), "first line");
  CHECK(step.at("step") == 1);
  CHECK(step.at("loss") == 2.5);
  CHECK(step.at("grad_norm").is_null());
  const Json evaluation = parse_json(text.substr(end + 1), "second line");
  CHECK(evaluation.at("validation_loss") == 2.25);
  CHECK(evaluation.at("best_validation_loss") == 2);
  CHECK(evaluation.at("sequences") == 7);
  CHECK(evaluation.at("epoch").is_null());
}

TEST_CASE("metrics: without a path nothing is written; a path that cannot be is an Error") {
  MetricsLog silent;
  silent.step({.totals = {.steps = 1}});
  const test::TempFolder folder;
  CHECK(test::contains(test::error_of([&] { MetricsLog log(folder / "missing/metrics.jsonl"); }),
                       "missing/metrics.jsonl: cannot be written"));
}

TEST_CASE("metrics: the summary") {
  const test::TempFolder folder;
  RunSummary summary;
  summary.world_size = 2;
  summary.totals.true_tokens = 1000;
  summary.totals.step_time_s = 4;
  summary.memory.predictable_peak = 77;
  summary.memory.held_peak = 99;
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
  CHECK(memory.at("ledger").at("in_all") == 99);
  CHECK(memory.at("predicted").at("by_category").size() == kMemoryCategories - 1);
  CHECK(json.at("collectives").at("all_gather").at("bytes") == 96);
  CHECK(json.at("communication").is_null());
  CHECK(json.at("restarts") == 0);
  CHECK(json.at("save_stall_share").is_null());
  summary.costs = {.restarts = 2,
                   .lost_s = 30.5,
                   .detection_s = 4,
                   .restart_s = 8,
                   .save_stall_s = 1,
                   .save_write_s = 5};
  summary.overlap = CommunicationOverlap{
      .by_kind = {{"all_gather", {.time_ns = 5'000'000, .exposed_ns = 2'000'000}}},
      .compute_ns = 1'000'000'000,
      .exposed_ns = 2'000'000};
  write_summary(folder / "metrics.json", summary);
  const Json again = read_json_file(folder / "metrics.json");
  CHECK(again.at("restarts") == 2);
  CHECK(again.at("lost_s") == 30.5);
  CHECK(again.at("detection_s") == 4);
  CHECK(again.at("restart_s") == 8);
  CHECK(again.at("save_stall_s") == 1);
  CHECK(again.at("save_write_s") == 5);
  CHECK(again.at("save_stall_share") == 0.2);
  const double share = again.at("effective_share");
  CHECK(share == summary.costs.effective_share(summary.totals.wall_time_s));
  const Json communication = again.at("communication");
  CHECK(communication.at("exposed_s") == 0.002);
  CHECK(communication.at("compute_s") == 1);
  CHECK(communication.at("by_kind").at("all_gather").at("time_s") == 0.005);
  for (const char* key : {"wall_time_s", "true_tokens", "world_size", "strategy", "dtype", "model",
                          "train_loss", "rss_growth_bytes"}) {
    CHECK(json.contains(key));
  }
}

TEST_CASE("metrics: speed and utilisation under the names of the workshop's callbacks") {
  RunSummary s;
  s.totals.steps = 10;
  s.totals.samples = 80;
  s.totals.step_time_s = 4;
  s.totals.last_steps_per_s = 3;
  s.totals.last_samples_per_s = 24;
  CHECK(callback_metrics(s) == Json({{"train/steps_per_second", 3.0},
                                     {"train/samples_per_second", 24.0},
                                     {"train/steps_per_second_mean", 2.5},
                                     {"train/samples_per_second_mean", 20.0}}));
  Sample sample;
  sample[kCpu] = 40;
  sample[kRamUsed] = 1000;
  s.samples_of_load.add(sample);
  sample[kCpu] = 60;
  s.samples_of_load.add(sample);
  Json metrics = callback_metrics(s);
  CHECK(metrics.size() == 7);
  CHECK(metrics.at("avg_cpu_util_%") == 50);
  CHECK(metrics.at("std_cpu_util_%") == 10);
  CHECK(metrics.at("avg_ram_used_MB") == 1000);
  // Of the two samples before, nothing is known of a GPU.
  for (const double percent : {70.0, 90.0}) {
    add_gpu(sample,
            {.utilisation = percent,
             .memory_used = 300.0 * (1 << 20),
             .memory_total = 400.0 * (1 << 20),
             .memory_pool = 200.0 * (1 << 20)},
            size_t{100} << 20);
    s.samples_of_load.add(sample);
  }
  metrics = callback_metrics(s);
  CHECK(metrics.size() == 12);
  CHECK(metrics.at("avg_gpu_util_%") == 80);
  CHECK(metrics.at("std_gpu_util_%") == 10);
  CHECK(metrics.at("avg_mem_alloc_MB") == 100);
  CHECK(metrics.at("avg_mem_reserved_MB") == 200);
  CHECK(metrics.at("avg_mem_total_MB") == 300);
}

TEST_CASE("metrics: the keys that the Mistral guide's scripts keep, and what it asks for beside") {
  const test::TempFolder folder;
  RunSummary s;
  s.facts = {.model = "mistralai/Mistral-7B-v0.1",
             .sharding_strategy = "full_shard",
             .seq_len = 512,
             .bsz = 2,
             .grad_accum = 4};
  s.model = "llama";
  s.world_size = 2;
  s.totals.steps = 10;
  s.totals.samples = 10 * 4 * 2 * 2;  // steps, accumulation, rows, ranks
  s.totals.true_tokens = 10 * 4 * 2 * 2 * 511;
  s.totals.step_time_s = 8;
  s.totals.wall_time_s = 9;
  s.peak_bytes = size_t{3} << 29;
  s.facts.cpu = "A CPU";
  write_summary(folder / "metrics.json", s);
  const Json json = read_json_file(folder / "metrics.json");
  for (const char* key : {"wall_time_s", "world_size", "torch", "model", "dataset", "bf16",
                          "use_lora", "gradient_checkpointing", "fsdp", "train/steps_per_second",
                          "tokens_per_s", "tokens_per_s_per_rank", "true_tokens"}) {
    CAPTURE(key);
    CHECK(json.contains(key));
  }
  CHECK(json.at("model") == "mistralai/Mistral-7B-v0.1");  // as the scripts name it
  CHECK(json.at("model_shape") == "llama");
  CHECK(json.at("sharding_strategy") == "full_shard");
  constexpr int kTokens = 10 * 4 * 2 * 512 * 2;
  CHECK(json.at("approx_tokens") == kTokens);
  CHECK(json.at("approx_tokens_per_rank") == kTokens / 2);
  CHECK(json.at("approx_tokens_per_s") == kTokens / 8);
  CHECK(json.at("approx_tokens_per_s_per_rank") == kTokens / 16);
  CHECK(json.at("peak_GiB") == 1.5);
  CHECK(json.at("cpu") == "A CPU");
  CHECK(json.at("gpu").is_null());
  s.facts.gpu = "NVIDIA H100";
  write_summary(folder / "metrics.json", s);
  CHECK(read_json_file(folder / "metrics.json").at("gpu") == "NVIDIA H100");
  CHECK(read_json_file(folder / "metrics.json").at("gpu0") == "NVIDIA H100");
}

TEST_CASE("metrics: the ranks of each host, and who was late there") {
  const test::TempFolder folder;
  RunSummary s;
  s.world_size = 3;
  s.hosts = {"b", "a", "b"};
  s.stragglers = {{.rank = 1, .phase = "backward", .late_s = 0.5, .steps = 20, .last_in = 1}};
  s.late_hosts = {{.rank = 0, .phase = "forward", .late_s = 0.25, .steps = 20, .last_in = 1}};
  write_summary(folder / "metrics.json", s);
  const Json json = read_json_file(folder / "metrics.json");
  REQUIRE(json.at("hosts").size() == 2);
  CHECK(json.at("hosts").at(0).at("host") == "b");
  CHECK(json.at("hosts").at(0).at("ranks").at(1) == 2);
  CHECK(json.at("hosts").at(1).at("host") == "a");
  CHECK(json.at("hosts").at(1).at("ranks").size() == 1);
  CHECK(json.at("stragglers").at(0).at("rank") == 1);
  CHECK(json.at("stragglers").at(0).at("host") == "a");
  CHECK(json.at("late_hosts").at(0).at("host") == "b");
  CHECK(json.at("late_hosts").at(0).at("late_s") == 0.25);
  CHECK(!json.at("late_hosts").at(0).contains("rank"));
}

// The size of a file is limited instead of the disk's; in a process of its own.
bool keeps_lines_of_a_full_disk(const std::filesystem::path& path) {
  ::signal(SIGXFSZ, SIG_IGN);
  MetricsLog log(path);
  log.evaluation({.step = 1, .loss = 0.5});
  const std::string first = read_file(path);
  const rlimit full = {first.size() + 5, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &full);
  log.evaluation({.step = 2, .loss = 0.5});
  log.evaluation({.step = 3, .loss = 0.5});
  const bool kept =
      log.problem() == path.string() + ": 2 lines cannot be written; is the disk full?" &&
      read_file(path) == first;
  const rlimit free = {RLIM_INFINITY, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &free);
  log.retry();
  std::string expected = first;
  for (const char* step : {"2", "3"}) expected += std::string(first).replace(8, 1, step);
  return kept && log.problem().empty() && read_file(path) == expected;
}

// See keeps_lines_of_a_full_disk().
bool forgets_lines_of_a_disk_that_stays_full(const std::filesystem::path& path) {
  ::signal(SIGXFSZ, SIG_IGN);
  LineLog log(path);
  const rlimit full = {5, RLIM_INFINITY}, free = {RLIM_INFINITY, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &full);
  constexpr int kLines = 20;
  constexpr size_t kLine = LineLog::kMostPending / 16;
  for (int i = 0; i < kLines; ++i)
    log.append_record(std::string(kLine, static_cast<char>('a' + i)));
  const bool told =
      log.problem() == path.string() +
                           ": 16 lines cannot be written; is the disk full?; 4 earlier "
                           "lines are lost";
  ::setrlimit(RLIMIT_FSIZE, &free);
  log.retry();
  const std::string text = read_file(path);
  return told && log.problem() == path.string() + ": 4 earlier lines are lost" &&
         text.size() == LineLog::kMostPending && text.front() == 'e' && text.back() == 't';
}

// See keeps_lines_of_a_full_disk(). Of the path even a look fails for a while.
bool keeps_lines_of_an_outage(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  ::signal(SIGXFSZ, SIG_IGN);
  const fs::path mount = path.parent_path() / "mount";
  fs::create_directory_symlink(".", mount);
  LineLog log(mount / path.filename());
  for (const char* line : {"one", "two"}) log.append(line);
  const rlimit full = {8 + 3, RLIM_INFINITY}, free = {RLIM_INFINITY, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &full);
  fs::remove(mount);
  fs::create_directory_symlink("mount", mount);  // a loop
  for (const char* line : {"three", "four"}) log.append(line);
  const bool waits = test::contains(log.problem(), "2 lines cannot be written");
  fs::remove(mount);
  fs::create_directory_symlink(".", mount);
  ::setrlimit(RLIMIT_FSIZE, &free);
  log.append("five");  // finds the log again
  log.retry();
  fs::remove(mount);
  return waits && log.problem().empty() && read_file(path) == "one\ntwo\nthree\nfour\nfive\n";
}

TEST_CASE("metrics: lines reach the disk when that is asked for") {
  const test::TempFolder folder;
  MetricsLog log(folder / "metrics.jsonl");
  log.evaluation({.step = 1, .loss = 2});
  CHECK(log.sync() == "");
  // Somebody has removed it: that is said, and the file begun again.
  std::filesystem::remove(folder / "metrics.jsonl");
  CHECK(test::contains(log.sync(), "metrics.jsonl: cannot open"));
  CHECK(test::contains(log.problem(), "metrics.jsonl: cannot open"));
  log.evaluation({.step = 2, .loss = 2});
  CHECK(log.sync() == "");
  CHECK(log.problem() == "");
  CHECK(read_file(folder / "metrics.jsonl").starts_with("{\"step\":2,"));
  CHECK(MetricsLog().sync() == "");
}

TEST_CASE("metrics: what a full disk does not take is written when there is room") {
  const test::TempFolder folder;
  for (const auto holds : {keeps_lines_of_a_full_disk, forgets_lines_of_a_disk_that_stays_full,
                           keeps_lines_of_an_outage}) {
    const pid_t process = ::fork();
    if (process == 0) ::_exit(holds(folder / "metrics.jsonl") ? 0 : 1);
    int status = -1;
    ::waitpid(process, &status, 0);
    CHECK(status == 0);
    std::filesystem::remove(folder / "metrics.jsonl");
  }
}

}  // namespace
}  // namespace fsdp::tools
