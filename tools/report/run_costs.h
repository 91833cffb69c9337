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
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/io/json.h"
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
  // From the end of a start that had come to a step to the beginning of the process that came to
  // its first step after it: pauses, starts that came to none, the launcher. Likewise.
  double pause_s = 0;
  double restart_s = 0;  // from the start of a process to the end of its first step, of restarts
  // How long the loop stood still for checkpoints, and how long rank 0 wrote these. Without the
  // checkpoint at the end of a start, which the run waits for.
  double save_stall_s = 0;
  double save_write_s = 0;

  // 1: the loop waits for the whole write, as without checkpoint.async. None: nothing was written.
  std::optional<double> save_stall_share() const {
    return save_write_s > 0 ? std::optional(save_stall_s / save_write_s) : std::nullopt;
  }
  // The share of the time in which steps were done that still count; `wall_time_s`: of these steps.
  double effective_share(double wall_time_s) const {
    const double all = wall_time_s + lost_s + detection_s + pause_s + restart_s;
    return all > 0 ? wall_time_s / all : 1;
  }
  bool operator==(const RunCosts&) const = default;
};
// v(key, value) of each, as progress.json and metrics.json have it.
template <typename Costs, typename V>
void visit_costs(Costs& c, V&& v) {
  v("restarts", c.restarts);
  v("lost_s", c.lost_s);
  v("detection_s", c.detection_s);
  v("pause_s", c.pause_s);
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
  double ended_before = 0;  // of this start alone: see begin_again
};
Json to_json(const RunProgress& progress);  // as progress.json has it
// Error for a file that is none of these.
RunProgress read_progress(const std::filesystem::path& file);
// The same of a run that may go on; none: there is no such file, or half of it is written.
std::optional<RunProgress> progress_so_far(const std::filesystem::path& file);
// The beginning of a start that goes on with `kept`, of a run that was seen `before`.
// `ended_before`: Unix time of the end of the last start that came to a step; 0: not known.
RunProgress begin_again(const RunProgress& before, const TrainTotals& kept, double ended_before);

// What the run has spent until it did steps again.
using CameBack = std::function<void(double pause_s, double restart_s)>;

// progress.json of this start. The ranks other than 0 have one without a path, which does nothing.
// A disk that does not take it is no reason to end a run. A thread touches the file every few
// seconds: a long step, an evaluation or a save is no silence, a process that is stopped is.
class ProgressFile {
 public:
  ProgressFile() = default;
  // `age`: of this process. `came_back`: of a restart, when its first step is done.
  ProgressFile(
      const std::filesystem::path& path, const RunProgress& begin,
      std::function<double()> age = [] { return process_age_s(); }, CameBack came_back = {});
  // Between steps: a sign of life. Ten times a second it is written, and at the `end` of the loop.
  void step(const TrainTotals& totals, bool end = false);
  void add_save(double stall_s, double write_s);
  void note_durable(int64_t step);  // makes the file again that somebody has removed
  const RunCosts& costs() const { return now_.costs; }

 private:
  void make();
  void write();
  void came_back(double now);

  std::filesystem::path path_;
  std::fstream file_;
  RunProgress now_;
  int64_t begun_at_ = 0;  // step
  std::function<double()> age_;
  CameBack came_back_;
  std::unique_ptr<std::jthread> touches_;
};

double unix_time();                         // now, in seconds
std::string utc_text(double unix_seconds);  // "2026-01-31 12:00:00 UTC"

}  // namespace fsdp::tools
