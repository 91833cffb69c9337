// One run of `fsdp train`, from its configuration to its run directory: session, values, training,
// checkpoints, the model, and what is said and written about all of it. Every rank makes one. It
// joins the rooms that know nothing of each other: train, checkpoint, predict, generate, report and
// model_folders. Not here: options of the command (tools/commands/train.cpp), the loop of steps
// (tools/train/trainer.h).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "core/trace_phases.h"
#include "models/weights.h"
#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/run_checkpoints.h"
#include "tools/checkpoint/settled_plan.h"
#include "tools/checkpoint/unit_hashes.h"
#include "tools/config/step_shape.h"
#include "tools/launch/gpu_memory.h"
#include "tools/launch/launch.h"
#include "tools/launch/run_output.h"
#include "tools/model_folders/save_model.h"
#include "tools/predict/memory_limit.h"
#include "tools/predict/memory_report.h"
#include "tools/report/device_snapshot.h"
#include "tools/report/failure_log.h"
#include "tools/report/monitor.h"
#include "tools/report/result_files.h"
#include "tools/report/run_costs.h"
#include "tools/report/run_directory.h"
#include "tools/train/prefetch.h"
#include "tools/train/train_data.h"
#include "tools/train/trainer.h"

namespace fsdp::tools {

// What the command line says beside the configuration.
struct TrainingRunOptions {
  std::string config_file;             // "": none
  std::vector<std::string> overrides;  // all that is given, as texts of --set
  int local_ranks = 0;
  std::string resume;  // "": not asked for
  bool resume_with_changes = false;
  bool restart_from_scratch = false;
  std::function<void(const std::string& line)>
      say;  // gets what rank 0 says, and a line of each other
  // The same of what is no part of a log, where the log is in another program's form.
  std::function<void(const std::string& line)> say_beside;
  RunOutput* progress = nullptr;  // where rank 0 shows it; null: nowhere
};

// The run that rank 0 settles the plan of; where a checkpoint turns out damaged while it is read,
// the one before it is taken; where the run rolls itself back, its last one. `before`: see
// settle_plan. Returns the status of the process. Collective.
int run_training(const TrainingRunOptions& options, ResumeRequest request, ResumePlan before,
                 RankContext& rank);

// What the sample at the end continues.
std::vector<int32_t> sample_prompt(const std::string& text, const data::Tokenizer& tokenizer);

// --resume auto of two jobs at once: the other has made the run directory meanwhile.
class LostRace : public AgreedError {
 public:
  using AgreedError::AgreedError;
};

class TrainingRun {
 public:
  // All three must outlive this. Collective.
  // `rolled_back`: where the run that this one goes on with was rolled back.
  TrainingRun(const TrainingRunOptions& options, SettledPlan& settled, RankContext& rank,
              const std::optional<RollBack::Where>& rolled_back = {})
      : options_(options),
        rolled_back_(rolled_back),
        plan_(settled.plan),
        config_(plan_.config),
        rank_(rank),
        data_(rank.world, config_,
              [this](const data::Tokenizer& tokenizer) { refuse_early(tokenizer); }),
        locks_(settled.locks) {
    config_ = plan_.config.in_steps(data_.steps_per_epoch());
  }

  // The status of the process: 0, or that of the signal that stopped the run. DamagedCheckpoint
  // when the run is to go on from an older one; nothing is written then. RollBack when it is to go
  // on from its last one. Collective.
  int run();

  // For a replay: the session with the state of the plan's checkpoint, and what it is trained on.
  // Collective.
  Session& prepare() {
    make_session();
    return *session_;
  }
  const config::TrainConfig& config() const { return config_; }
  BatchSource training() const;  // of steps, without what the run leaves out
  const std::filesystem::path& directory() const { return directory_; }
  std::string device() const;  // kind of processor or GPU; after prepare()

 private:
  bool speaks() const { return rank_.world.rank() == 0; }
  void say(const std::string& text) {
    if (speaks()) options_.say(text);
  }
  // For who reads a log in another program's form, what that program would not print is elsewhere.
  void say_beside(const std::string& text) {
    const bool foreign = config_.train.log_format.guest && options_.say_beside;
    if (speaks()) foreign ? options_.say_beside(text) : options_.say(text);
  }
  void say_notes(const std::vector<std::string>& notes, std::string_view kind = "note: ") {
    for (const std::string& note : notes) {
      if (!note.empty()) say(std::string(kind) + note);
    }
  }
  // Both are collective: the error of one rank is that of all.
  void with_patience(const std::function<void()>& work) {
    agree(rank_.world, config_.runtime.patience(), work);
  }
  void on_first_rank(const std::function<void()>& work) {
    with_patience([&] {
      if (speaks()) work();
    });
  }
  // Of the checkpoint that the run continues from.
  TrainTotals kept() const { return plan_.manifest ? plan_.manifest->progress : TrainTotals{}; }

  // training_run_setup.cpp: what it will need, and what it may take
  void refuse_early(const data::Tokenizer& tokenizer);
  void predict();
  std::vector<GpuMemory::Reading> gpu_memory_of_ranks();
  void keep_to_what_nccl_left();
  void tell_what_libraries_took();
  void refuse(const PredictedData& data, const data::Tokenizer& tokenizer,
              const std::optional<PredictedData>& least = {});
  // session, values and directory
  void make_session();
  models::FillFunction initial_values();
  void initialise();
  int64_t saved_bytes() const;
  void check_length() const;
  void check_state() const;
  void restore_state();
  void read_state();
  void make_directory();
  void choose_id();
  void take_directory();
  void begin_progress();
  void note_failure(const RunProgress& before, const RunProgress& begin);
  void place_checkpoints();
  void check_room_of_model();
  void check_room();
  void introduce();
  void introduce_ranks();
  // training_run_loop.cpp: its steps
  BatchRanges left_out() const;
  TrainTotals progress_before() const;
  std::function<void(int64_t step)> note_unit_hashes();
  TrainerOptions trainer_options();
  void begin_job_time();
  std::string stored_config() const;
  std::string reason_to_stop(int signal) const;
  void end_long_timeline(int64_t step);
  MonitorOptions monitoring() const;  // collective
  TrainTotals train();
  // its checkpoints
  std::string base_of(Session& session) const;
  RunCheckpoints& checkpoints();
  bool writes_checkpoints() const;
  bool needs_checkpoints() const;
  bool start_checkpoint(const TrainTotals& totals);
  void write_checkpoint(const TrainTotals& totals, bool last);
  void watch_checkpoint(bool wait);
  bool take_checkpoint(bool wait);
  void settle_checkpoint(const TrainTotals& totals);
  // training_run.cpp: its end
  size_t formula_states() const;
  MemoryReport memory_report();
  void find_stragglers(RunSummary& summary);
  RunSummary summarise(const TrainTotals& totals);
  void report(RunSummary& summary);
  RunIntervals intervals() const;
  std::optional<int> gpu() const;
  RunFacts facts() const;
  std::string sample();
  void write_trace();
  void unless_stopped(const TrainTotals& totals, const std::function<void()>& work);
  void keep_directory();
  RunEnd end_of(const TrainTotals& totals) const;
  void take_best(const TrainTotals& totals);
  void save();
  void write_results(const RunSummary& summary);

  const TrainingRunOptions& options_;
  const std::optional<RollBack::Where> rolled_back_;
  const ResumePlan& plan_;
  config::TrainConfig config_;  // in steps
  RankContext& rank_;
  TrainData data_;
  models::ModelConfig model_;
  FolderOptions saved_;  // of rank 0
  PlacedOptions session_options_;
  MemoryUsage predicted_, predicted_host_, predicted_file_;  // on rank 0
  size_t host_needed_ = 0;  // of rank 0, predicted; for what is offloaded
  Prefetch::Times batch_times_;
  std::vector<std::string> hosts_;       // by rank
  SampleSums load_;                      // of this rank
  std::string monitor_problem_;          // why rows of its samples are missing; "": none are
  size_t limit_ = 0;                     // bytes that this rank may hold
  size_t needed_ = 0;                    // bytes of a rank, predicted
  std::optional<GpuMemory> gpu_memory_;  // with NCCL, until its use was told
  size_t resident_before_ = 0;
  Trace trace_;          // outlives the session, whose workers write into it
  bool traces_ = false;  // see end_long_timeline()
  std::optional<TracePhases> phases_;
  std::unique_ptr<Session> session_;
  std::filesystem::path directory_;
  EndNote end_before_;  // of the start that this one goes on with
  std::string id_;      // of the run, in its directory and its checkpoints
  RunLocks& locks_;
  std::optional<RunCheckpoints> checkpoints_;  // made when it is needed
  bool without_checkpoints_ = false;           // there was no place for them at the start
  std::optional<UnitHashLog> unit_hashes_;     // none: the run keeps none
  std::string failed_checkpoint_;              // why the last one is not there; "": it is
  int64_t durable_step_ = 0;                   // of the last complete checkpoint
  ProgressFile progress_file_;
  std::optional<JobTime> job_time_;  // of rank 0; none: the time is not limited
  bool last_save_ = false;  // the checkpoint that was started last is that of the run's end
};

}  // namespace fsdp::tools
