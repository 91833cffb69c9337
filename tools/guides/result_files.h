// The files that Hugging Face's Trainer leaves, and a table for spreadsheets, made of metrics.jsonl
// and the summary of a run: train_results.json, eval_results.json, all_results.json,
// trainer_state.json, metrics.csv. Keys and their meaning are transformers 4.57's
// (Trainer.save_metrics, speed_metrics, TrainerState), but for two: `loss` in log_history is that
// of the step, not a mean since the line before, and total_flos is left out. Perplexity is exp of
// the loss, which counts as 20 at most. Read next: metrics.h.
#pragma once

#include <filesystem>
#include <optional>

#include "tools/report/metrics.h"

namespace fsdp::tools {

constexpr double kMostLossOfPerplexity = 20;
double perplexity_of(double loss);  // nats a token

// Of the configuration; 0: never.
struct RunIntervals {
  int64_t steps = 0;   // of the whole run
  int64_t epochs = 0;  // 0: the run is counted in steps
  int64_t log_every = 0, eval_every = 0, save_every = 0;
  int64_t rows_per_rank = 0;    // of a micro-step
  std::string best_checkpoint;  // its folder; "": none
};
inline constexpr const char* kResultFiles[] = {"train_results.json", "eval_results.json",
                                               "all_results.json", "trainer_state.json",
                                               "metrics.csv"};
void write_result_files(const std::filesystem::path& directory, const RunSummary& summary,
                        const RunIntervals& intervals);

}  // namespace fsdp::tools
