// A logged step, an evaluation and the end of a run as lines in the form of another program, for
// scripts that read that program's logs: what such a form is. Not here: the forms (tools/guides),
// our own line (progress.h), metrics.jsonl (metrics.h).
#pragma once

#include <string>
#include <string_view>

#include "tools/report/metrics.h"

namespace fsdp::tools {

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

  void add(const LogWindow& more) {
    steps += more.steps;
    tokens += more.tokens;
    samples += more.samples;
    seconds += more.seconds;
    loss_sum += more.loss_sum;
  }
};

struct LogLines {
  std::string_view name;  // as a value of train.log_format
  // Whether the first and the last step have a line, too; else every `log_every`-th alone.
  bool first_and_last = false;
  std::string (*step)(const StepMetrics& step, const LogWindow& window, const LogContext& context);
  std::string (*evaluation)(const EvaluationMetrics& evaluation, int64_t skipped,
                            const LogContext& context);
  // After the last step; null: the program ends without a line.
  std::string (*end)(const StepMetrics& last, const LogContext& context) = nullptr;
  // Gradients of a step overflowed, and the loss scale is this one now; null: no line.
  std::string (*overflow)(double loss_scale) = nullptr;

  // Of a step that is logged, of which there are also the first and the last one.
  bool prints_step(int64_t step, int64_t log_every) const {
    return first_and_last || step % log_every == 0;
  }
};

}  // namespace fsdp::tools
