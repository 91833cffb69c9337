// The files that Hugging Face's Trainer leaves, and a table for spreadsheets, made of metrics.jsonl
// and the summary of a run: train_results.json, eval_results.json, all_results.json,
// trainer_state.json, metrics.csv. Keys and their meaning are transformers 4.57's
// (Trainer.save_metrics, speed_metrics, TrainerState), but for two: `loss` in log_history is that
// of the step, not a mean since the line before, and total_flos is left out. Perplexity is exp of
// the loss, which counts as 20 at most. Read next: tools/report/result_files.h, metrics.h.
#pragma once

#include "tools/report/result_files.h"

namespace fsdp::tools {

double perplexity_of(double loss);  // nats a token
extern const ResultFiles kTrainerFiles;

}  // namespace fsdp::tools
