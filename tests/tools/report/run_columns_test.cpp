// Columns of an ended run: values, units, what is relative to another run.
#include "tools/report/run_columns.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/report/metrics.h"

namespace fsdp::tools {
namespace {

RunSummary summary() {
  RunSummary s;
  s.world_size = 2;
  s.parameters = 1234;
  s.totals = {.steps = 10, .true_tokens = 1000, .samples = 40, .wall_time_s = 5, .step_time_s = 4};
  s.totals.recent_losses = {1.5};
  s.totals.validation_loss = 2;
  s.weights_hash = "abc";
  s.memory.predictable_peak = 3 << 20;
  s.host.predictable_peak = 1 << 19;
  s.memory.peak[static_cast<size_t>(MemoryCategory::kOptimizerState)] = 1 << 20;
  s.collectives["all_gather"] = {.calls = 30, .bytes = 20 << 20};
  s.collectives["reduce_scatter"] = {.calls = 10, .bytes = 1};
  s.collectives["all_reduce"] = {.calls = 5, .bytes = 1};
  s.stragglers = {{.rank = 1}};
  s.hosts = {"a", "a"};
  return s;
}

FinishedRun run_of(const test::TempFolder& folder, const RunSummary& s) {
  folder.write("config.yaml", "train: {lr: 1}\n");
  write_summary(folder / "metrics.json", s);
  return read_finished_run(folder.path());
}

TEST_CASE("run columns: every one has a value, in its unit") {
  const test::TempFolder folder;
  const FinishedRun run = run_of(folder, summary());
  folder.write("metrics.jsonl",
               "{\"step\":1,\"loss\":1,\"grad_norm\":3.5}\n"
               "{\"step\":2,\"loss\":1,\"grad_norm\":2.5}\n"
               "{\"step\":2,\"validation_loss\":1,\"loss\":1}\n");
  const auto value = [&](const char* name) { return run_column(name).value(run); };
  CHECK(value("s_per_step") == 0.4);
  CHECK(value("tokens_per_s") == 250);
  CHECK(value("tokens_per_s_per_rank") == 125);
  CHECK(value("samples_per_s") == 10);
  CHECK(value("words_per_s") == 250);
  CHECK(value("steps") == 10);
  CHECK(value("parameters") == 1234);
  CHECK(value("train_loss") == 1.5);
  CHECK(value("perplexity") == std::exp(2.0));
  CHECK(value("grad_norm") == 2.5);
  CHECK(value("peak_memory") == 3);
  CHECK(value("peak_predicted") == 0);
  CHECK(value("host_peak") == 0.5);
  CHECK(value("optimizer_peak") == 1);
  CHECK(value("gathers_per_step") == 3);
  CHECK(value("reduces_per_step") == 1.5);
  CHECK(value("gathered_MiB_per_step") == 2);
  CHECK(value("weights_hash") == "abc");
  CHECK(value("straggler") == "rank 1");
  CHECK(value("exposed_s").is_null());
  CHECK(value("f1").is_null());
  CHECK(value("/hosts/0/host") == "a");
  CHECK(value("/missing").is_null());
  for (const std::string& name : run_column_names()) {
    const RunColumn column = run_column(name);
    CAPTURE(name);
    CHECK(!column.head.empty());
    CHECK((column.value || column.relative || name.starts_with("full_size_")));
  }
}

TEST_CASE("run columns: speed-up, strong and weak scaling are relative to a baseline") {
  const test::TempFolder folder;
  RunSummary s = summary();
  s.world_size = 1;
  s.hosts = {"a"};
  const Baseline one = baseline_of({run_of(folder, s)});
  CHECK(one.tokens_per_s == 250);
  CHECK(one.tokens_of_rank == 100);
  const auto relative = [&](const char* name, const RunSummary& other) {
    const Json value = run_column(name).relative(run_of(folder, other), one);
    return value.is_number() ? value.get<double>() : -1;
  };
  RunSummary strong = summary();  // the same work in 2.5 s
  strong.totals.step_time_s = 2.5;
  CHECK(relative("speed_up", strong) == doctest::Approx(1.6));
  CHECK(relative("efficiency", strong) == doctest::Approx(0.8));
  CHECK(relative("weak_efficiency", strong) == -1);  // a rank has half the work
  RunSummary weak = summary();                       // twice the work in 5 s
  weak.totals.true_tokens = 2000;
  weak.totals.step_time_s = 5;
  CHECK(relative("weak_efficiency", weak) == doctest::Approx(0.8));
}

TEST_CASE("run columns: what is not known is named with the nearest") {
  CHECK(test::contains(test::error_of([] { run_column("s_per_stp"); }),
                       "unknown column \"s_per_stp\"; the nearest is \"s_per_step\""));
}

TEST_CASE("run columns: texts for people") {
  CHECK(text_of(Json(), 2) == "-");
  CHECK(text_of("abc", 2) == "abc");
  CHECK(text_of(true, 0) == "yes");
  CHECK(text_of(1234567, 2) == "1,234,567");
  CHECK(text_of(12345.6, 2) == "12,346");
  CHECK(text_of(1.5, 2) == "1.50");
  CHECK(text_of(0.000812, 4) == "0.000812");
  CHECK(text_of(0.0, 4) == "0.0000");
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
}

}  // namespace
}  // namespace fsdp::tools
