// A logged step, an evaluation and the end of a run as lines in the form of other programs, for
// scripts that read these programs' logs. Sources: fairseq 0.12 (logging/progress_bar.py,
// JsonProgressBar; logging/metrics.py), transformers 4.57 (Trainer.log, speed_metrics), the chess
// guide's training loop. Not here: our own line (tools/report/progress.h), metrics.jsonl
// (tools/report/metrics.h).
#pragma once

#include <string>

#include "tools/config/config.h"
#include "tools/report/metrics.h"

namespace fsdp::tools {

using config::LogFormat;

// What a line says beside the metrics.
struct LogContext {
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;  // 0: not known
  size_t memory_bytes = 0;      // that this rank may hold; 0: not known
  bool scales_loss = false;     // the run has a loss scale, 1 or another
};
// Of the steps since the line before.
struct LogWindow {
  int64_t steps = 0, tokens = 0, samples = 0;
  double seconds = 0;   // without evaluations
  double loss_sum = 0;  // of all these steps

  void add(const LogWindow& more);
};
// Of the whole run.
struct LogTotals {
  double train_s = 0;             // of all steps, without evaluations
  double next_learning_rate = 0;  // that the next step will have
  double mean_loss = 0;           // over all steps
};

// Whether a line is printed for a step that is logged, of which there are also the first and the
// last one. transformers (without logging_first_step) and fairseq print every `log_every`-th alone.
bool prints_step(LogFormat format, int64_t step, int64_t log_every);

// All of these: of any format but ours.
std::string step_line(LogFormat format, const StepMetrics& step, const LogWindow& window,
                      const LogTotals& totals, const LogContext& context);
std::string evaluation_line(LogFormat format, const EvaluationMetrics& evaluation, int64_t skipped,
                            const LogContext& context);
// After the last step; "": the program ends without a line.
std::string end_line(LogFormat format, const StepMetrics& last, const LogTotals& totals,
                     const LogContext& context);
// Gradients of a step overflowed, and the loss scale is this one now; "": the program says nothing.
std::string overflow_line(LogFormat format, double loss_scale);

}  // namespace fsdp::tools
