// Order of a run, its session, values and folder.
#include "tools/run/training_run.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <random>

#include "comm/exchange.h"
#include "core/io/json.h"
#include "core/text/counted.h"
#include "models/adapter_folder.h"
#include "tools/config/guests.h"
#include "tools/config/step_shape.h"
#include "tools/launch/interrupt.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/model_folders/load_model.h"
#include "tools/report/run_reader.h"
#include "tools/run/run_files.h"
#include "tools/run/run_texts.h"
#include "tools/train/config_to_session.h"
#include "tools/train/left_out.h"

namespace fsdp::tools {

namespace {

// --resume auto of two jobs at once: the other has made the run directory meanwhile.
class LostRace : public AgreedError {
 public:
  using AgreedError::AgreedError;
};

// The run goes on from its last checkpoint, or from where it began.
ResumeRequest request_of_rollback(const std::filesystem::path& directory,
                                  const ResumeRequest& before) {
  return {.from = "auto",
          .with_changes = before.with_changes,
          .config_file = directory / "config.yaml",
          .overrides = {"runtime.run_dir=" + Json(directory.string()).dump()},
          .damaged = before.damaged};
}

// Of a run that has done all its steps.
int end_finished(const TrainingRunOptions& options, const ResumePlan& plan,
                 const RankContext& rank) {
  const config::TrainSection& train = plan.config.train;
  const std::string length =
      train.epochs > 0 ? counted(train.epochs, "epoch") : counted(train.steps, "step");
  if (rank.world.rank() == 0) {
    options.say(fmt::format("{}: this run has done its {}: nothing to go on with",
                            plan.run_directory.string(), length));
  }
  if (!plan.gave_up.empty()) throw AgreedError(plan.gave_up, status::kGaveUp);
  return 0;
}

}  // namespace

int run_training(const TrainingRunOptions& options, ResumeRequest request, ResumePlan before,
                 RankContext& rank) {
  std::optional<RollBack::Where> rolled_back;
  RunLocks locks;
  constexpr int kMostRaces = 3;
  int races = 0;
  // What fails after a rollback is no mistake of a person.
  const auto prepare = [&](const ResumePlan& plan, const auto& work) {
    return rolled_back ? work() : before_first_step(work, plan.config.runtime.goes_on);
  };
  // Its files were there before.
  const auto goes_on = [&](const ResumePlan& plan) {
    return rank.restarts > 0 || rolled_back || plan.manifest;
  };
  for (;;) {
    before.config.runtime.goes_on = goes_on(before);
    SettledPlan settled = prepare(before, [&] {
      return settle_plan(
          rank.world, request, before, [&](const std::string& line) { options.say(line); },
          std::move(locks));
    });
    settled.plan.config.runtime.goes_on = goes_on(settled.plan);
    const ResumePlan& plan = settled.plan;
    if (plan.finished) return end_finished(options, plan, rank);
    std::optional<TrainingRun> run;
    if (rank.world.rank() == 0 && races == 0 && !plan.manifest && plan.config.model.path.empty())
      options.say("from scratch: the weights are random (no model.path)");
    try {
      prepare(plan, [&] { run.emplace(options, settled, rank, rolled_back); });
      return run->run();
    } catch (const RollBack& error) {
      if (rank.world.rank() == 0)
        options.say(fmt::format("warning: {}: rolled back", error.what()));
      rolled_back = error.where();
      request = request_of_rollback(run->directory(), request);
      agree(rank.world, [&] { before = plan_resume(request); });
      locks = std::move(settled.locks);
    } catch (const LostRace&) {
      if (++races == kMostRaces) throw;
      agree(rank.world, [&] { before = plan_resume(request); });
    } catch (const DamagedCheckpoint& error) {
      request.damaged[plan.checkpoint] = error.what();
    } catch (const AgreedError&) {
      throw;
    } catch (const std::exception& error) {
      // Ranks that are threads are told before the session goes: it waits for its streams, and
      // these for ranks whose hosts wait for this one.
      if (rank.local_ranks > 1) rank.world.abort(error.what());
      throw;
    }
  }
}

// Every rank but the first, which speaks for the run, has one line; in their order.
void TrainingRun::introduce_ranks() {
  for (int rank = 1; rank < rank_.world.size(); ++rank) {
    if (rank == rank_.world.rank()) options_.say(describe_rank(rank, gpu(), rank_.threads));
    rank_.world.barrier();
  }
}

// What the run is, before it begins.
void TrainingRun::introduce() {
  const std::string means =
      rank_.backend.cuda
          ? (config_.runtime.launch.share_gpus ? "on GPUs" : "a GPU each")
          : fmt::format("{} thread{} each", rank_.threads, rank_.threads == 1 ? "" : "s");
  const DType dtype = config_.train.dtype;
  const DType masters = config_.train.master_dtype.value_or(accumulation_dtype(dtype));
  say(fmt::format("{}; {} on {}, {}, {}, master weights in {}", describe(model_),
                  choice_name(config_.fsdp.options.strategy), counted(rank_.world.size(), "rank"),
                  means, fsdp::name_of(dtype), fsdp::name_of(masters)));
  for (const std::string& line : device_snapshot(rank_.world, gpu())) say(line);
  hosts_ = rank_.world.exchange(host_name());
  const comm::GroupSizes groups = comm::group_sizes(session_options_.fsdp, rank_.world.size());
  if (const std::string spread = spread_groups(hosts_, groups.shards); !spread.empty()) {
    say("note: " + spread);
  }
  introduce_ranks();
  if (!rank_.backend.cuda || session_->sharded().options().host) {
    say(fmt::format("{} on the CPU: {} arithmetic, {} thread{} a rank",
                    optim::name_of(session_options_.optimizer.kind), cpu_instruction_set(),
                    rank_.threads, rank_.threads == 1 ? "" : "s"));
  }
  if (const std::string trained = describe_trained(session_->parameters()); !trained.empty()) {
    say(trained);
  }
  say(config::step_shape(config_, rank_.world.size()).text());
  if (!config_.data.is_tokens()) {
    say(fmt::format("tokenizer: {} ({} tokens)", data_.tokenizer_name(),
                    data_.tokenizer().vocab_size()));
  }
  for (const std::string& remark : data_.remarks()) say(remark);
  for (const std::string& remark :
       remarks(config_, model_, rank_.world.size(), data_.sequences())) {
    say("note: " + remark);
  }
  for (const std::string& note : plan_.notes) say("note: " + note);
  for (const std::string& warning : plan_.warnings) say("warning: " + warning);
  for (const auto& [first, end] : left_out()) {
    say(
        fmt::format("note: batches {} to {} of the training data (samples {} to {}) are left out, "
                    "by a rollback",
                    first + 1, end, data_.samples_after(first) + 1, data_.samples_after(end)));
  }
}

int TrainingRun::run() {
  const auto prepare = [this] {
    make_session();
    make_directory();
  };
  rolled_back_ ? prepare() : before_first_step(prepare, config_.runtime.goes_on);
  introduce();
  const GraceLimit grace(std::chrono::seconds(config_.runtime.launch.grace_s), rank_.world.rank());
  catch_interrupts();  // until here a signal ends the process at once: there is nothing to save
  const TrainTotals totals = train();
  if (totals.signal != 0) {
    // A launcher makes SIGTERM of every signal.
    const bool translated = rank_.under_launcher && totals.signal != SIGUSR1;
    const std::string what = translated ? "a signal" : reason_to_stop(totals.signal);
    say(fmt::format("stopped by {} after step {}", what, totals.steps));
  }
  // What a full disk refuses changes nothing about a checkpoint that is durable.
  unless_stopped(totals, [this] { keep_directory(); });
  settle_checkpoint(totals);
  RunSummary summary = summarise(totals);
  take_best(totals);
  // The checkpoint is all that a run needs which is started again, and its time is short.
  if (totals.signal != SIGUSR1) save();
  // A run that a signal has stopped says it by its status.
  if (needs_checkpoints() && !failed_checkpoint_.empty() && totals.signal == 0) {
    throw AgreedError(failed_checkpoint_);
  }
  // A model whose losses are not finite has no next token.
  const bool samples = totals.signal == 0 && nonfinite_validation(totals).empty();
  const std::string continued = samples ? sample() : "";
  report(summary);  // now, when the ledger has seen all
  if (!continued.empty()) say(continued);
  unless_stopped(totals, [this] { write_trace(); });
  // Last: where it is, the run has left everything else.
  summary.end = end_of(totals);
  unless_stopped(totals, [&] { write_results(summary); });
  say(fmt::format("\nrun directory: {}", directory_.string()));
  // The model and the checkpoint are there for who wants to look at them.
  if (summary.end.status == status::kGaveUp) throw AgreedError(summary.end.reason, status::kGaveUp);
  return summary.end.status;
}

// A run that was told to stop says by its status whether its checkpoint is durable, also where the
// disk has no room for what it leaves beside it.
void TrainingRun::unless_stopped(const TrainTotals& totals, const std::function<void()>& work) {
  try {
    work();
  } catch (const AgreedError& error) {
    if (totals.signal == 0) throw;
    say(fmt::format("warning: {}", error.what()));
  }
}

void TrainingRun::write_results(const RunSummary& summary) {
  const auto write = [&] {
    if (!speaks()) return;
    for (const auto* files : config::guests_of<ResultFiles>()) {
      files->write(directory_, summary, intervals());
    }
    write_summary(directory_ / "metrics.json", summary);
  };
  agree(rank_.world, config_.runtime.patience(), write);
}

// Everything that can be wrong with the input is found here, before a run directory is made.
void TrainingRun::make_session() {
  comm::Communicator& world = rank_.world;
  PlacedOptions& options = session_options_;
  std::string vocabulary_note;
  agree(world, config_.runtime.patience(), [&] {
    model_ = model_config(config_, data_.vocabulary());
    if (config_.model.path.empty() && !config_.data.is_tokens()) {
      model_.eos_token = data_.tokenizer().end_of_text();
    }
    vocabulary_note = data_.check_vocabulary(model_.vocabulary);
    options = session_options(config_, model_, world.size(), rank_.backend);
    check_attention(rank_.backend, config_.train.attention_deterministic);
    const int64_t end = config_.runtime.launch.end_time;
    FSDP_CHECK(end == 0 || static_cast<double>(end) > unix_time(),
               "runtime.end_time: {} has passed {:.0f} s ago; 0: what Slurm says", end,
               unix_time() - static_cast<double>(end));
    FSDP_CHECK(!options.lora || !config_.model.path.empty(),
               "lora.r: needs model.path, the model that the adapter belongs to");
    if (!speaks()) return;
    saved_ = form_of_run(config_, data_.tokenizer_name(), data_.tokenizer(),
                         [this](const std::string& note) { say("note: " + note); });
    saved_.replaces = true;  // that of a run which was stopped and goes on
    if (!plan_.run_directory.empty()) return;
    // The disk of a job that is started again may have room later: see place_checkpoints().
    check_run_directory(config_.runtime.run_dir, config_.runtime.goes_on ? 0 : saved_bytes());
  });
  check_length();
  data_.check_trained(world, models::input_rules(model_));
  predict();
  resident_before_ = process_memory().resident;
  phases_.emplace(config_.runtime.trace ? &trace_ : nullptr,
                  [rings = rank_.world.rings()](const std::vector<std::string>& open) {
                    rings->set_phase(comm::HostPhase::of(open));
                  });
  const PhaseScope loading(&*phases_, "loading");
  if (rank_.backend.nccl && world.size() > 1) gpu_memory_.emplace(rank_.backend.cuda->device);
  session_ = std::make_unique<Session>(world, make_places(world, options), options);
  session_->set_phases(&*phases_);
  keep_to_what_nccl_left();
  // On a CPU what is offloaded comes from the same memory.
  const bool one_memory = session_->host() && session_->backend().host_reaches_memory();
  const size_t offloaded = one_memory ? host_needed_ : 0;
  session_->backend().ledger().set_limit(limit_ - std::min(limit_ - 1, offloaded),
                                         [this] { return phases_->innermost(); });
  for (const std::string& note : {vocabulary_note, rank_.backend_note, world.notice(),
                                  session_->file() ? file_notice(*session_->file()) : ""}) {
    if (!note.empty()) say("note: " + note);
  }
  initialise();
  if (plan_.manifest) restore_state();
  traces_ = config_.runtime.trace;
  if (traces_) session_->set_trace(&trace_);
}

// Of the model that the run saves at its end. An adapter is small.
int64_t TrainingRun::saved_bytes() const {
  if (!config_.train.save || session_options_.lora) return 0;
  return model_.parameter_count() * static_cast<int64_t>(size_of(saved_.dtype));
}

// What only the text can say: how many steps an epoch has.
void TrainingRun::check_length() const {
  const int64_t done = plan_.manifest ? plan_.manifest->step() : 0;
  if (config_.train.steps >= done) return;
  throw AgreedError(
      fmt::format("train.epochs: expected at least {:.3g}, the {} steps that {} has, got {}",
                  static_cast<double>(done) / static_cast<double>(data_.steps_per_epoch()), done,
                  plan_.checkpoint.string(), config_.train.epochs));
}

models::FillFunction TrainingRun::initial_values() {
  const auto scratch =
      models::from_scratch(static_cast<uint64_t>(config_.train.seed), model_.padding_row);
  if (config_.model.path.empty()) return scratch;
  models::ComparedPart compared{rank_.world.rank(), rank_.world.size()};
  if (config_.fsdp.sync_module_states) compared = {};  // rank 0 reads for all
  const auto base =
      models::from_folder(config_.model.path, model_, session_->parameters(), compared);
  if (speaks()) {
    for (const std::string& warning : warnings_about(config_.model.path)) {
      say("note: " + warning);
    }
  }
  if (!config_.lora.path.empty()) {
    return models::with_adapter(base, config_.lora.path, session_->model());
  }
  return [=](const Parameter& parameter, int64_t first, Tensor& values) {
    (models::is_lora(parameter) ? scratch : base)(parameter, first, values);
  };
}

void TrainingRun::initialise() {
  const bool from_first_rank = config_.fsdp.sync_module_states;
  models::FillFunction fill;
  const IoPatience patience = config_.runtime.patience();
  agree(rank_.world, patience, [&] {
    if (from_first_rank && rank_.world.rank() != 0) return;
    fill = [patience, all = initial_values(), progress = rank_.world.rings()->progress()](
               const Parameter& parameter, int64_t first, Tensor& values) {
      progress->during([&] { patiently(patience, [&] { all(parameter, first, values); }); });
    };
    if (!plan_.manifest) return;
    // What is trained comes from the checkpoint.
    fill = [all = std::move(fill)](const Parameter& parameter, int64_t first, Tensor& values) {
      if (!parameter.trainable()) all(parameter, first, values);
    };
  });
  agree(rank_.world, [&] {
    from_first_rank ? session_->initialise_from_first_rank(fill) : session_->initialise(fill);
  });
}

void TrainingRun::make_directory() {
  directory_ = plan_.run_directory;
  if (directory_.empty()) {
    try {
      directory_ = make_run_directory(rank_.world, config_.runtime.run_dir, config_.runtime.name,
                                      config_.runtime.patience());
    } catch (const AgreedError& error) {
      if (options_.resume != "auto" || error.cause() != Cause::kPerson) throw;
      throw LostRace(error.what(), status::kMistake);
    }
  }
  choose_id();
  try {
    take_directory();
    place_checkpoints();
  } catch (const AgreedError&) {
    if (speaks() && plan_.run_directory.empty()) forget_directory(directory_);
    throw;
  }
}

// A run keeps its id when it goes on, also where run_args.json was lost.
void TrainingRun::choose_id() {
  id_ = plan_.run;
  if (id_.empty() && !plan_.run_directory.empty() && plan_.falls_back) id_ = plan_.manifest->run;
  if (id_.empty()) {
    std::random_device random;
    id_ = hex((uint64_t{random()} << 32) | random());
  }
  id_ = comm::from_first_rank(rank_.world, id_);
}

void TrainingRun::take_directory() {
  agree(rank_.world, config_.runtime.patience(), [&] {
    if (!speaks()) return;
    const auto replaced = directory_ / (session_->lora() ? "adapter" : "model");
    check_source_stays("model.path", config_.model.path, replaced);
    check_source_stays("lora.path", config_.lora.path, replaced);
    check_own_checkpoints(config_, id_, directory_);  // before what is unfinished there is removed
    if (locks_.held.empty()) {
      locks_ = take_run_directory(directory_, checkpoint_folder(config_, directory_),
                                  {std::chrono::seconds(config_.runtime.lock_wait_s),
                                   [this](const auto& line) { say(line); }});
    }
    if (options_.restart_from_scratch && !plan_.manifest) {
      const auto aside = set_aside_checkpoints(checkpoint_folder(config_, directory_));
      if (!aside.empty())
        say(fmt::format("note: what is left of checkpoints is in {}", aside.string()));
    }
    if (options_.resume.empty() && !rolled_back_) return;
    end_before_ = end_of_run(directory_).value_or(EndNote{.host = only_host_of(directory_)});
    // A new directory gets the lines of the run that it begins in.
    const bool elsewhere = plan_.run_directory.empty() && plan_.manifest;
    const std::filesystem::path before(elsewhere ? plan_.manifest->run_directory
                                                 : directory_.string());
    const TrainTotals totals = plan_.manifest ? plan_.manifest->progress : TrainTotals{};
    for (const std::string& note :
         go_on_in_directory(directory_, before, totals,
                            {config_.train.log_every.steps, config_.train.steps})) {
      say("note: " + note);
    }
  });
  if (!locks_.note.empty()) say("note: " + locks_.note);
  if (rank_.rings) rank_.rings->set_directory(directory_);
  const config::StepShape shape = config::step_shape(config_, rank_.world.size());
  CheckpointOfRun from;
  if (plan_.manifest) {
    from = {plan_.manifest->step(), std::filesystem::absolute(plan_.checkpoint).string(),
            plan_.manifest->run};
  }
  write_run_arguments(rank_.world, directory_,
                      {.run = id_,
                       .command = "train",
                       .config = options_.config_file,
                       .overrides = options_.overrides,
                       .local_ranks = options_.local_ranks,
                       .threads = rank_.threads,
                       .restarts = rank_.restarts,
                       .job = batch_job(),
                       .resumed_from = from,
                       .effective_batch = shape.batch,
                       .rows_per_pass = shape.rows_per_pass,
                       .micro_steps = shape.micro_steps,
                       .facts = facts()},
                      config_.runtime.patience());
  agree(rank_.world, config_.runtime.patience(), [&] {
    if (!speaks()) return;
    write_file_atomically(directory_ / "config.yaml", stored_config());
    write_skipped_rows(directory_, data_.skipped_rows());
    begin_progress();
  });
}

// Of rank 0.
void TrainingRun::begin_progress() {
  const auto file = directory_ / "progress.json";
  const TrainTotals kept = plan_.manifest ? plan_.manifest->progress : TrainTotals{};
  RunProgress begin = {.step = kept.steps, .wall_time_s = kept.wall_time_s};
  try {
    if (is_there(file)) {
      const RunProgress before = read_progress(file);
      begin = begin_again(before, kept, rolled_back_ ? 0 : rank_.ended_before);
      if (rolled_back_) begin.costs.restarts = before.costs.restarts;  // the process goes on
      note_failure(before, begin);
    }
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    say(fmt::format("note: {}; what earlier failures cost is not known", error.what()));
  }
  const auto age = [this] { return rolled_back_ ? 0 : process_age_s(); };
  progress_file_ = ProgressFile(file, begin, age, [this](double pause_s, double restart_s) {
    complete_failure(directory_, pause_s, restart_s);
  });
}

// What the start before has left of its end counts, then what the launcher has seen of it: that is
// of the last start that came to a step, or of the first.
void TrainingRun::note_failure(const RunProgress& before, const RunProgress& begin) {
  EndNote end = end_before_;
  const bool was_seen = !rolled_back_ && (before.seen > 0 || rank_.restarts == 1);
  if (end.status < 0 && was_seen) end.status = rank_.status_before;
  if (was_seen && !rank_.cause_before.empty()) end.cause = rank_.cause_before;
  if (rolled_back_) end.cause = "rolled back";
  if (end.cause.empty()) {
    end.cause = end.status > 128 ? fmt::format("killed by signal {}", end.status - 128)
                                 : "it has not said why";
  }
  if (end.time == 0) end.time = rank_.ended_before > 0 ? rank_.ended_before : before.seen;
  append_failure(directory_, {.end = end,
                              .restart = rank_.restarts,
                              .step = before.step,
                              .steps_lost = std::max(before.step - begin.step, int64_t{0}),
                              .lost_s = begin.costs.lost_s - before.costs.lost_s,
                              .detection_s = begin.costs.detection_s - before.costs.detection_s});
}

// The model is worth more than the folder that somebody removed during the run.
void TrainingRun::keep_directory() {
  agree(rank_.world, config_.runtime.patience(), [&] {
    // A checkpoint that was written since has made the folder again.
    if (!speaks()) return;
    try {
      if (is_there(directory_ / "config.yaml")) return;
    } catch (const SystemError&) {  // nobody knows
      return;
    }
    make_folders(directory_);
    write_file_atomically(directory_ / "config.yaml", stored_config());
    say(fmt::format("note: {} was removed during the run; made again, without its metrics.jsonl",
                    directory_.string()));
  });
}

}  // namespace fsdp::tools
