// A run from its plan to its status, and its end: the summary, the model, the sample, the trace,
// and what is said about them.
#include "tools/run/training_run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "core/io/json.h"
#include "core/text/counted.h"
#include "models/input_rules.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/config/guests.h"
#include "tools/config/step_shape.h"
#include "tools/data/text_stream.h"
#include "tools/generate/generation.h"
#include "tools/launch/interrupt.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/model_folders/load_model.h"
#include "tools/report/communication_overlap.h"
#include "tools/report/run_reader.h"
#include "tools/run/run_parts.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

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
    return rank.before.count() > 0 || rolled_back || plan.manifest;
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
      report_before_unwinding(rank, error);  // as with_session() does
      throw;
    }
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
// ---------------------------------------------------------------------------- Results

// 0: the formula says nothing of a part of the model that is frozen, and of narrower values.
size_t TrainingRun::formula_states() const {
  if (optim::state_names(session_options_.optimizer).size() != 2 || session_->lora() ||
      !config_.train.freeze.empty() || config_.train.master_dtype ||
      config_.train.optimizer.state_dtype)
    return 0;
  const comm::GroupSizes groups = comm::group_sizes(session_options_.fsdp, rank_.world.size());
  return states_by_formula(config_.fsdp.options.strategy, groups.shards, model_.parameter_count());
}

// Collective.
MemoryReport TrainingRun::memory_report() {
  MemoryReport memory = {.ledger = session_->backend().ledger().usage(),
                         .host = {},
                         .process_ranks = rank_.local_ranks,
                         .resident_growth = process_memory().peak_resident - resident_before_};
  struct OfRank {
    size_t peak, trace;
  };
  if (session_->host()) memory.host = session_->host()->ledger().usage();
  if (session_->file()) memory.file = session_->file()->ledger().usage();
  const OfRank mine = {memory.ledger.total_peak + memory.host.total_peak, bytes_of(trace_)};
  const std::vector<OfRank> of_process =
      rank_.local_ranks > 1 ? comm::exchange_values(rank_.world, mine) : std::vector<OfRank>{mine};
  for (const OfRank& rank : of_process) {
    memory.process_ledger += rank.peak;
    memory.trace += rank.trace;
  }
  if (!speaks()) return memory;
  memory.predicted = predicted_;
  memory.predicted_host = predicted_host_;
  memory.predicted_file = predicted_file_;
  memory.formula_states = formula_states();
  memory.on_gpu = rank_.backend.cuda.has_value();
  memory.at_most = models::input_rules(model_).knows_padding();
  return memory;
}

// Of the last steps. Collective.
void TrainingRun::find_stragglers(RunSummary& summary) {
  comm::RankRings mine = {
      .rank = rank_.world.rank(), .place = {}, .rings = rank_.world.rings()->snapshot()};
  for (comm::RingSnapshot& ring : mine.rings) ring.records.clear();
  std::vector<comm::RankRings> all;
  for (const std::string& text : rank_.world.exchange(to_json(mine))) {
    if (speaks()) all.push_back(rings_from_json(text, "rings"));
  }
  if (!speaks()) return;
  std::vector<int> host_of;
  for (const std::string& host : hosts_) {
    const auto first = std::find(hosts_.begin(), hosts_.end(), host);
    host_of.push_back(static_cast<int>(first - hosts_.begin()));
  }
  summary.stragglers = comm::find_stragglers(all);
  const bool one_host = std::count(host_of.begin(), host_of.end(), 0) == rank_.world.size();
  const auto host = [&](const comm::Straggler& s) { return hosts_[static_cast<size_t>(s.rank)]; };
  for (const comm::Straggler& late : summary.stragglers) {
    say(fmt::format("note: {}{}", comm::describe(late),
                    one_host ? "" : "; it is on " + host(late)));
  }
  if (one_host) return;
  summary.late_hosts = comm::find_stragglers(all, host_of);
  for (const comm::Straggler& late : summary.late_hosts) {
    say("note: " + comm::describe(late, "host " + host(late)));
  }
}

// What training and validation came to; without the memory, which saving and the sample take too.
RunSummary TrainingRun::summarise(const TrainTotals& totals) {
  const StateHash hash = hash_state(*session_);
  const SampleSums load = sums_of_ranks(rank_.world, load_);
  if (const auto problem = comm::first_to_say(rank_.world, monitor_problem_)) {
    say(fmt::format("note: rank {}: {}", problem->rank, problem->text));
  }
  RunSummary late;
  find_stragglers(late);
  if (!speaks()) return {};
  std::optional<CommunicationOverlap> overlap;
  if (config_.runtime.trace) overlap = measure_overlap(trace_.events());
  // It is of next tokens.
  const std::optional<double> bigram =
      model_.shifted_labels ? data_.bigram_entropy() : std::nullopt;
  return {
      .facts = facts(),
      .model = describe(model_),
      .strategy = std::string(choice_name(config_.fsdp.options.strategy)),
      .dtype = std::string(fsdp::name_of(config_.train.dtype)),
      .world_size = rank_.world.size(),
      .hosts = hosts_,
      .threads_per_rank = rank_.threads,
      .parameters = model_.parameter_count(),
      .totals = totals,
      .costs = progress_file_.costs(),
      .epochs = static_cast<double>(totals.steps) / static_cast<double>(data_.steps_per_epoch()),
      .batch_making_s = batch_times_.made_s,
      .batch_waiting_s = batch_times_.waited_s,
      .resumed_from = kept().steps,
      .weights_hash = hex(hash.weights),
      .optimizer_hash = hex(hash.optimizer),
      .best_step = checkpoints_ && checkpoints_->best() ? std::optional(checkpoints_->best()->step)
                                                        : std::nullopt,
      .bigram_entropy = bigram,
      .samples_of_load = load,
      .collectives = rank_.world.rings()->totals(),
      .stragglers = late.stragglers,
      .late_hosts = late.late_hosts,
      .overlap = overlap};
}

// Collective.
void TrainingRun::report(RunSummary& summary) {
  const MemoryReport memory = memory_report();
  const std::vector<size_t> peaks = comm::exchange_values(rank_.world, memory.ledger.total_peak);
  if (!speaks()) return;
  summary.peak_bytes = *std::max_element(peaks.begin(), peaks.end());
  summary.predicted_memory = memory.predicted;
  summary.memory = memory.ledger;
  summary.predicted_host = memory.predicted_host;
  summary.host = memory.host;
  summary.predicted_file = memory.predicted_file;
  summary.file = memory.file;
  summary.resident_growth_bytes = memory.resident_growth;
  if (summary.totals.signal != 0) return;
  say_beside(fmt::format("\n{}", format_losses(summary.totals, config_.train.log_every.steps,
                                               summary.bigram_entropy)));
  std::string table = format_memory_table(memory);
  table.pop_back();  // the end of its last line
  say_beside(table);
  const std::string batches =
      format_batch_times(batch_times_, summary.totals.steps - summary.resumed_from);
  if (!batches.empty()) say_beside(batches);
  if (summary.overlap) say_beside(format_overlap(*summary.overlap));
}

RunIntervals TrainingRun::intervals() const {
  const config::StepShape shape = config::step_shape(config_, rank_.world.size());
  const int64_t passes = rank_.world.size() * shape.micro_steps;
  return {.steps = config_.train.steps,
          .epochs = plan_.config.train.epochs,
          .log_every = config_.train.log_every.steps,
          .eval_every = config_.train.eval_every.steps,
          .save_every = config_.checkpoint.interval().steps,
          .rows_per_rank = (shape.batch + passes - 1) / passes,
          .best_checkpoint = checkpoints_ && checkpoints_->best()
                                 ? checkpoints_->folder_of(checkpoints_->best()->step).string()
                                 : ""};
}

// As CUDA numbers it; none: the CPU computes, though it may be for f64 alone.
std::optional<int> TrainingRun::gpu() const {
  if (session_->backend().name() != "cuda") return std::nullopt;
  return rank_.backend.cuda->device;
}

std::string TrainingRun::device() const { return gpu() ? gpu_name(*gpu()) : cpu_name(); }

RunFacts TrainingRun::facts() const {
  const config::DataSection& data = config_.data;
  return {.model = config_.model.path.empty() ? describe(model_) : config_.model.path,
          .dataset = data.synthetic() ? "synthetic"
                                      : fmt::format("{}", fmt::join(data.training_files(), ", ")),
          .run_name = config_.runtime.name,
          .sharding_strategy = std::string(choice_name(config_.fsdp.options.strategy)),
          .max_steps = config_.train.steps,
          .seq_len = data.sequence_length,
          .bsz = intervals().rows_per_rank,
          .grad_accum = config::step_shape(config_, rank_.world.size()).micro_steps,
          .lr = config_.train.lr,
          .seed = config_.train.seed,
          .subset_size = data.subset.n,
          .fsdp = config_.fsdp.options.strategy != comm::Strategy::kNoShard,
          .bf16 = config_.train.dtype == DType::kBF16,
          .use_lora = session_->lora().has_value(),
          .gradient_checkpointing = config_.train.recompute.mode != RecomputeMode::kNone,
          .cpu = cpu_name(),
          .gpu = gpu() ? gpu_name(*gpu()) : ""};
}

std::string TrainingRun::sample() {
  const config::SampleSection& c = config_.sample;
  if (c.tokens == 0) return "";
  const PhaseScope phase(session_->phases(), "sample");
  const data::Tokenizer& tokenizer = data_.tokenizer();
  const std::vector<int32_t> prompt = sample_prompt(c.prompt, tokenizer);
  if (prompt.empty()) return "sample: none: no token of sample.prompt, and no end-of-text to begin";
  const int32_t largest = *std::max_element(prompt.begin(), prompt.end());
  if (largest >= model_.vocabulary) {
    return fmt::format(
        "sample: none: token {} of its prompt is beyond the model's vocabulary of {}", largest,
        model_.vocabulary);
  }
  const std::vector<int32_t> tokens =
      generate_tokens(*session_,
                      {.tokens = c.tokens,
                       .sampling = {.temperature = c.temperature,
                                    .top_k = c.top_k,
                                    .seed = static_cast<uint64_t>(config_.train.seed)},
                       .stop = {tokenizer.end_of_text()},
                       .vocabulary = tokenizer.vocab_size()},
                      {prompt})
          .front()
          .ids;
  return fmt::format("sample: {}|{}", c.prompt, data::text_after(tokenizer, prompt, tokens));
}

void TrainingRun::write_trace() {
  if (!config_.runtime.trace) return;
  session_->set_trace(nullptr);
  phases_->record();
  with_patience([&] {
    const int rank = rank_.world.rank();
    write_file_atomically(directory_ / fmt::format("trace.rank{}.json", rank),
                          trace_.to_json(rank));
  });
}
// ---------------------------------------------------------------------------- The end

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

// The model is worth more than the folder that somebody removed during the run.
void TrainingRun::keep_directory() {
  on_first_rank([&] {
    try {  // a checkpoint that was written since has made the folder again
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

RunEnd TrainingRun::end_of(const TrainTotals& totals) const {
  RunEnd end = {.status = status_after(totals.signal), .last_durable_step = durable_step_};
  if (totals.signal == 0) {
    const std::string nonfinite = failed_validation(config_, totals);
    if (!nonfinite.empty()) return {status::kGaveUp, nonfinite, durable_step_};
    return {status::kDone, "done", durable_step_};
  }
  end.reason = "stopped by " + reason_to_stop(totals.signal);
  if (end.status == status::kStartAgain && durable_step_ < totals.steps) {
    end.status = status::kNotDurable;
    end.reason += "; " + failed_checkpoint_;
  }
  return end;
}

// checkpoint.load_best: what is saved are the weights of the best checkpoint.
void TrainingRun::take_best(const TrainTotals& totals) {
  if (!config_.checkpoint.load_best || totals.signal != 0) return;
  const auto& best = checkpoints().best();
  if (!best) return say("note: checkpoint.load_best: no checkpoint has the value to judge it by");
  const auto folder = checkpoints_->folder_of(best->step);
  try {  // all of it before a weight is changed
    agree(rank_.world, [&] {
      if (!speaks()) return;
      const std::vector<std::string> problems =
          Checkpoint(folder, true, config_.runtime.patience()).verify_all();
      FSDP_CHECK(problems.empty(), "{}", problems.front());
    });
  } catch (const AgreedError& error) {
    return say(fmt::format("warning: checkpoint.load_best: {}; the model is that of the last step",
                           error.what()));
  }
  agree(rank_.world, [&] {
    Checkpoint checkpoint(folder, false, config_.runtime.patience());
    restore_weights(*session_, checkpoint);
  });
  say(fmt::format("the best checkpoint: step {}, {:.4f}", best->step, best->value));
}

void TrainingRun::save() {
  if (!config_.train.save) return;
  const PhaseScope phase(session_->phases(), "saving");
  const auto folder = directory_ / (session_->lora() ? "adapter" : "model");
  const IoPatience patience = config_.runtime.patience();
  for (int64_t retry = 0;; ++retry) {
    try {
      return say_notes(save_model(*session_, folder, saved_), "warning: ");
    } catch (const AgreedError& error) {  // on all ranks
      if (error.cause() != Cause::kMachine || retry == patience.retries) throw;
    }
    std::this_thread::sleep_for(pause_before_retry(patience, retry));
  }
}

void TrainingRun::write_results(const RunSummary& summary) {
  on_first_rank([&] {
    for (const auto* files : config::guests_of<ResultFiles>()) {
      files->write(directory_, summary, intervals());
    }
    write_summary(directory_ / "metrics.json", summary);
  });
}

}  // namespace fsdp::tools
