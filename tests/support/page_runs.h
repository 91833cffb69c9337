// Run directories for the tests of tools/page: what a run of two ranks leaves, without the run.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"
#include "tools/report/metrics.h"

namespace fsdp::test {

// A model that needs no files, so that its units can be listed.
inline std::string page_config(const std::string& strategy) {
  return "model: {model_type: gpt2, hidden_size: 32, layers: 2, heads: 2}\n"
         "data: {train: [none.txt], sequence_length: 16}\n"
         "train: {steps: 3, batch: 2, lr: 0.001}\nfsdp: {strategy: " +
         strategy + "}\n";
}

// With three logged steps, of which the last has the loss 1.25, and an evaluation.
inline std::filesystem::path begun_run(const TempFolder& parent, const std::string& name,
                                       const std::string& config) {
  const std::filesystem::path run = parent / name;
  std::filesystem::create_directories(run);
  parent.write(name + "/config.yaml", config);
  parent.write(name + "/run_args.json",
               R"({"command": "train", "config": "my run.yaml", "set": ["train.lr=0.001"],
                   "world_size": 2, "local_ranks": 2, "max_steps": 9, "started": "2026-01-02T05:04:05+0200"})");
  parent.write(name + "/progress.json",
               R"({"seen": 1000, "step": 3, "wall_time_s": 6, "durable_step": 2, "restarts": 1})");
  tools::MetricsLog log(run / "metrics.jsonl");
  for (int64_t step = 1; step <= 3; ++step) {
    const auto s = static_cast<double>(step);
    log.step({.totals = {.steps = step, .wall_time_s = 2 * s},
              .loss = 2 - s / 4,
              .grad_norm = 1 / s,
              .learning_rate = 0.001,
              .tokens_per_s = 100 + s,
              .peak_memory_bytes = 5 << 20});
  }
  log.evaluation({.step = 3, .loss = 1.5});
  return run;
}

inline std::filesystem::path ended_run(const TempFolder& parent, const std::string& name,
                                       const std::string& config) {
  const std::filesystem::path run = begun_run(parent, name, config);
  tools::RunSummary s;
  s.end.reason = "done";
  s.world_size = 2;
  s.model = "gpt2, 2 layers";
  s.totals = {.steps = 3, .true_tokens = 300, .wall_time_s = 6, .step_time_s = 3};
  s.totals.recent_losses = {1.25};
  s.memory.peak[static_cast<size_t>(MemoryCategory::kActivation)] = 3 << 20;
  s.memory.predictable_peak = 5 << 20;
  s.predicted_memory = s.memory;
  s.predicted_memory.predictable_peak = 4 << 20;
  s.host.predictable_peak = 1 << 20;
  s.collectives["all_gather"] = {.calls = 30, .bytes = 6 << 20};
  s.overlap = tools::CommunicationOverlap{
      .by_kind = {{"all_gather", {.time_ns = 6'000'000, .exposed_ns = 3'000'000}}},
      .by_unit = {},
      .compute_ns = 9'000'000,
      .exposed_ns = 3'000'000};
  tools::write_summary(run / "metrics.json", s);
  return run;
}

// A timeline of two steps of 10 ms, with memory.
inline void add_trace(const std::filesystem::path& run) {
  constexpr int64_t kMs = 1'000'000;
  Trace trace;
  int64_t sequence = 0;
  const auto add = [&](const std::string& name, const std::string& unit, const std::string& lane,
                       int64_t begin, int64_t end) {
    trace.record({name, unit, lane, begin * kMs, begin * kMs, end * kMs, 64, sequence++});
  };
  for (int64_t step = 0; step < 2; ++step) {
    const int64_t begin = 10 * step;
    add(fmt::format("step {}", step + 1), "", "step", begin, begin + 10);
    add("forward", "", "step", begin, begin + 5);
    add("all_gather", "blocks.0", "gather", begin, begin + 2);
    add("matmul", "blocks.0", "compute", begin + 2, begin + 9);
  }
  std::string text = trace.to_json(0);
  const std::string end = "\n]}\n";
  text.resize(text.size() - end.size());
  const auto sample = [&](int64_t us, int64_t bytes) {
    text += fmt::format(
        ",\n{{\"ph\":\"C\",\"name\":\"memory: activation\",\"pid\":0,\"ts\":{}.000,\"args\":"
        "{{\"bytes\":{}}}}}",
        us, bytes);
  };
  sample(1000, 1 << 20), sample(2000, 512), sample(12'000, 3 << 20), sample(13'000, 1 << 20);
  std::ofstream(run / "trace.rank0.json") << text << end;
}

}  // namespace fsdp::test
