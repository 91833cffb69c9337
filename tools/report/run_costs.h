// What a run has spent beside training: on failures, on starting again, on standing still for
// checkpoints. progress.json in the run directory keeps it, with how far the run was when it was
// seen last. A checkpoint cannot keep it, because what a failure loses comes after the checkpoint;
// run_args.json is written before a start has come to its first step. Read next: metrics.h. Not
// here: what the steps came to (train_totals.h), whether a job starts again (tools/jobs).
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "tools/launch/host_load.h"
#include "tools/report/train_totals.h"

namespace fsdp::tools {

// Sums over all starts of a run, in seconds.
struct RunCosts {
  int64_t restarts = 0;  // starts after the first one
  // Of the loop, between the checkpoint that a start went on from and the last step of the start
  // before: these steps are done again.
  double lost_s = 0;
  // From the last sign of life of a start, a finished step or checkpoint, to its end. Only of
  // starts whose end `fsdp launch` has seen.
  double detection_s = 0;
  double restart_s = 0;  // from the start of a process to the end of its first step, of restarts
  // How long the loop stood still for checkpoints, and how long rank 0 wrote these. Without the
  // checkpoint at the end of a start, which the run waits for.
  double save_stall_s = 0;
  double save_write_s = 0;

  // 1: the loop waits for the whole write, as without checkpoint.async. None: nothing was written.
  std::optional<double> save_stall_share() const {
    return save_write_s > 0 ? std::optional(save_stall_s / save_write_s) : std::nullopt;
  }
  bool operator==(const RunCosts&) const = default;
};
// v(key, value) of each, as progress.json and metrics.json have it.
template <typename Costs, typename V>
void visit_costs(Costs& c, V&& v) {
  v("restarts", c.restarts);
  v("lost_s", c.lost_s);
  v("detection_s", c.detection_s);
  v("restart_s", c.restart_s);
  v("save_stall_s", c.save_stall_s);
  v("save_write_s", c.save_write_s);
}

// A start of a run, as it was seen last.
struct RunProgress {
  double seen = 0;  // Unix time of a sign of life; 0: none, its first step is not finished
  int64_t step = 0;
  double wall_time_s = 0;    // as TrainTotals counts it
  int64_t durable_step = 0;  // of the last complete checkpoint
  RunCosts costs = {};
};
// Error for a file that is none of these.
RunProgress read_progress(const std::filesystem::path& file);
// The beginning of a start that goes on with `kept`, of a run that was seen `before`.
// `ended_before`: Unix time of the end of the start before; 0: not known.
RunProgress begin_again(const RunProgress& before, const TrainTotals& kept, double ended_before);

// progress.json of this start. The ranks other than 0 have one without a path, which does nothing.
// A disk that does not take it is no reason to end a run.
class ProgressFile {
 public:
  ProgressFile() = default;
  // `age`: of this process.
  ProgressFile(
      const std::filesystem::path& path, const RunProgress& begin,
      std::function<double()> age = [] { return process_age_s(); });
  // Between steps: a sign of life. Ten times a second it is written, and at the `end` of the loop.
  void step(const TrainTotals& totals, bool end = false);
  void add_save(double stall_s, double write_s);
  void note_durable(int64_t step);
  const RunCosts& costs() const { return now_.costs; }

 private:
  void write();

  std::fstream file_;
  RunProgress now_;
  int64_t begun_at_ = 0;  // step
  std::function<double()> age_;
};

double unix_time();  // now, in seconds

}  // namespace fsdp::tools
