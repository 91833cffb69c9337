// What a training run has come to so far, held by value wherever it is needed: the loop counts
// (tools/train/trainer.h), a checkpoint's manifest keeps it (tools/checkpoint/manifest.h), and
// metrics.json prints it (metrics.h). A new metric of a run: a member, its line in
// visit_totals(), and the place that counts. Not here: what only the end of a run knows
// (RunSummary in metrics.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace fsdp::tools {

// Batches [first, end) of the order of the data, in this order and apart.
using BatchRanges = std::vector<std::array<int64_t, 2>>;

struct TrainTotals {
  int64_t steps = 0;                           // done, with or without an update
  int64_t skipped = 0;                         // of them, without an update
  int64_t spikes = 0;                          // of the skipped: their gradient norm was a spike
  int64_t spikes_in_a_row = 0;                 // up to now
  int64_t rollbacks = 0;                       // to a checkpoint, by the run itself
  BatchRanges left_out = {};                   // by the rollbacks, at most one for each
  std::vector<double> good_norms = {};         // at most train.spike.window; see loop_rules.h
  int64_t true_tokens = 0;                     // labels trained on, over all ranks
  int64_t samples = 0;                         // sequences trained on, over all ranks and epochs
  double wall_time_s = 0;                      // of the loop, evaluations included
  double step_time_s = 0;                      // without evaluations
  std::vector<double> recent_losses = {};      // at most log_every
  double loss_sum = 0;                         // of all steps; see Trainer::finish
  std::optional<double> validation_loss = {};  // the last one
  int64_t validated_at = -1;                   // after that many steps; -1: never
  std::optional<double> best_validation_loss = {};

  // Of this process alone: a run that goes on begins them anew.
  int signal = 0;                 // the signal that ended the run early, or 0
  double last_steps_per_s = 0;    // of the steps since the logged line before the last
  double last_samples_per_s = 0;  // of the same steps
  void begin_process() { signal = 0, last_steps_per_s = last_samples_per_s = 0; }

  double train_loss() const {  // mean over the last log_every steps
    return std::accumulate(recent_losses.begin(), recent_losses.end(), 0.0) /
           static_cast<double>(std::max<size_t>(recent_losses.size(), 1));
  }
  double mean_loss() const {  // over all steps
    return loss_sum / static_cast<double>(std::max<int64_t>(steps, 1));
  }
  bool operator==(const TrainTotals&) const = default;
};

// What a checkpoint keeps, as v(key in its manifest, key in metrics.json, value); "": metrics.json
// has no such key. A manifest without the key, of an older program, leaves the member as it is.
template <typename Totals, typename V>
void visit_totals(Totals& t, V&& v) {
  v("steps", "steps", t.steps);
  v("skipped", "skipped_steps", t.skipped);
  v("spikes", "spikes", t.spikes);
  v("spikes_in_a_row", "", t.spikes_in_a_row);
  v("rollbacks", "rollbacks", t.rollbacks);
  v("left_out", "left_out_batches", t.left_out);
  v("good_norms", "", t.good_norms);
  v("true_tokens", "true_tokens", t.true_tokens);
  v("samples", "samples", t.samples);
  v("wall_time_s", "wall_time_s", t.wall_time_s);
  v("step_time_s", "step_time_s", t.step_time_s);
  v("recent_losses", "", t.recent_losses);
  v("loss_sum", "", t.loss_sum);
  v("validation_loss", "validation_loss", t.validation_loss);
  v("validated_at", "", t.validated_at);
  v("best_validation_loss", "best_validation_loss", t.best_validation_loss);
}

// One step of the loop, and the totals after it.
struct StepMetrics {
  TrainTotals totals = {};
  int64_t total_steps = 0;  // of the whole run
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double next_learning_rate = 0;  // that the next step will have
  double loss_scale = 1;
  std::optional<double> epoch = {};
  double tokens_per_s = 0;       // over the steps since the line before
  size_t peak_memory_bytes = 0;  // ledger of rank 0

  double seconds_left() const {
    return totals.step_time_s / static_cast<double>(std::max<int64_t>(totals.steps, 1)) *
           static_cast<double>(total_steps - totals.steps);
  }
};

}  // namespace fsdp::tools
