// fsdp train: from a configuration to a trained model and a run directory.
// Read next: tools/train/trainer.h (the loop), tools/train/train_data.h (the text).
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "comm/exchange.h"
#include "core/io/file.h"
#include "core/trace_phases.h"
#include "models/adapter_folder.h"
#include "models/token_padding.h"
#include "models/weights.h"
#include "tools/bench/device_report.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/run_checkpoints.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/commands/predicted_run.h"
#include "tools/config/config.h"
#include "tools/data/text_stream.h"
#include "tools/generate/generation.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/model_folders/load_model.h"
#include "tools/model_folders/save_model.h"
#include "tools/predict/memory_report.h"
#include "tools/report/communication_overlap.h"
#include "tools/report/run_directory.h"
#include "tools/train/config_to_session.h"
#include "tools/train/train_data.h"
#include "tools/train/trainer.h"

namespace fsdp::tools {
namespace {

struct TrainOptions {
  LaunchOptions launch;  // the number of ranks; the rest is the configuration's
  ConfigOptions given;
  std::string resume;  // "": not asked for
  bool resume_with_changes = false;
  std::vector<std::string> overrides;  // all that is given, as texts of --set
};

std::string format_losses(const TrainOutcome& outcome, int64_t averaged_steps,
                          std::optional<double> bigram) {
  std::string out =
      fmt::format("loss (nats per token)\n  {:<26}{:>8.4f}   mean of the last {} steps\n",
                  "training", outcome.train_loss, std::min(averaged_steps, outcome.steps));
  if (outcome.validation_loss) {
    out += fmt::format("  {:<26}{:>8.4f}\n", "validation", *outcome.validation_loss);
  }
  if (bigram) {
    out += fmt::format("  {:<26}{:>8.4f}   validation text by the training text's token pairs\n",
                       "bigram entropy", *bigram);
  }
  return out;
}

class TrainRun {
 public:
  TrainRun(const TrainOptions& options, const ResumePlan& plan, RankContext& rank)
      : options_(options),
        plan_(plan),
        config_(plan.config),
        rank_(rank),
        data_(rank.world, config_) {
    config_ = plan.config.in_steps(data_.steps_per_epoch());
  }

  int run();

 private:
  bool speaks() const { return rank_.world.rank() == 0; }
  void say(const std::string& text) {
    if (speaks()) std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }
  void make_session();
  std::string base_of(Session& session) const;
  models::FillFunction initial_values();
  void initialise();
  void restore_state();
  void make_directory();
  void go_on_in_directory();
  void keep_directory();
  void save();
  RunCheckpoints& checkpoints();
  int64_t save_every() const;
  void write_checkpoint(const TrainProgress& progress);
  void take_best(const TrainOutcome& outcome);
  TrainOutcome train();
  RunSummary summarise(const TrainOutcome& outcome);
  void predict();
  MemoryReport memory_report();
  void report(const TrainOutcome& outcome, RunSummary& summary);
  std::vector<int32_t> sample_prompt() const;
  std::string sample();
  void write_trace();

  const TrainOptions& options_;
  const ResumePlan& plan_;
  config::TrainConfig config_;  // in steps
  RankContext& rank_;
  TrainData data_;
  models::ModelConfig model_;
  FolderOptions saved_;  // of rank 0
  SessionOptions session_options_;
  MemoryUsage predicted_;  // on rank 0
  size_t resident_before_ = 0;
  Trace trace_;  // outlives the session, whose workers write into it
  TracePhases phases_{trace_};
  std::unique_ptr<Session> session_;
  std::filesystem::path directory_;
  std::unique_ptr<FileLock> lock_;             // of rank 0
  std::optional<RunCheckpoints> checkpoints_;  // made when it is needed
};

int TrainRun::run() {
  make_session();
  make_directory();
  const std::string means =
      rank_.backend.cuda
          ? (config_.runtime.launch.share_gpus ? "on GPUs" : "a GPU each")
          : fmt::format("{} thread{} each", rank_.threads, rank_.threads == 1 ? "" : "s");
  say(fmt::format("{}; {} on {} rank{}, {}, {}", describe(model_),
                  choice_name(config_.fsdp.options.strategy), rank_.world.size(),
                  rank_.world.size() == 1 ? "" : "s", means, fsdp::name_of(config_.train.dtype)));
  if (const std::string trained = describe_trained(session_->parameters()); !trained.empty()) {
    say(trained);
  }
  say(fmt::format("tokenizer: {} ({} tokens)", data_.tokenizer_name(),
                  data_.tokenizer().vocab_size()));
  for (const std::string& remark :
       remarks(config_, model_, rank_.world.size(), data_.sequences())) {
    say("note: " + remark);
  }
  for (const std::string& note : plan_.notes) say("note: " + note);
  const TrainOutcome outcome = train();
  if (outcome.signal != 0) {
    // A launcher makes SIGTERM of every signal.
    const bool translated = rank_.under_launcher && outcome.signal != SIGUSR1;
    const std::string_view what = translated ? "a signal" : name_of_signal(outcome.signal);
    say(fmt::format("stopped by {} after step {}", what, outcome.steps));
  }
  keep_directory();
  RunSummary summary = summarise(outcome);
  take_best(outcome);
  // The checkpoint is all that a run needs which is started again, and its time is short.
  if (outcome.signal != SIGUSR1) save();
  const std::string continued = outcome.signal == 0 ? sample() : "";
  report(outcome, summary);  // now, when the ledger has seen all
  if (!continued.empty()) say(continued);
  write_trace();
  // Last: where it is, the run has left everything else.
  agree(rank_.world, [&] {
    if (speaks()) write_summary(directory_ / "metrics.json", summary);
  });
  say(fmt::format("\nrun directory: {}", directory_.string()));
  return outcome.signal == 0 ? 0 : status_after(outcome.signal);
}

// Everything that can be wrong with the input is found here, before a run directory is made.
void TrainRun::make_session() {
  comm::Communicator& world = rank_.world;
  SessionOptions& options = session_options_;
  std::string vocabulary_note;
  agree(world, [&] {
    model_ = model_config(config_, data_.tokenizer().vocab_size());
    if (config_.model.path.empty()) model_.eos_token = data_.tokenizer().end_of_text();
    vocabulary_note = data_.check_vocabulary(model_.vocabulary);
    options = session_options(config_, model_, world.size(), rank_.backend);
    FSDP_CHECK(!options.lora || !config_.model.path.empty(),
               "lora.r: needs model.path, the model that the adapter belongs to");
    if (!speaks()) return;
    saved_ = form_of_run(config_, data_.tokenizer_name());
    // An adapter is small.
    const int64_t saved_parameters = options.lora ? 0 : model_.parameter_count();
    if (!plan_.run_directory.empty()) return;
    check_run_directory(config_.runtime.run_dir,
                        saved_parameters * static_cast<int64_t>(size_of(saved_.dtype)));
  });
  predict();
  resident_before_ = process_memory().resident;
  session_ = std::make_unique<Session>(world, options);
  for (const std::string& note :
       {preset_note(config_.model.preset), vocabulary_note, rank_.backend_note, world.notice()}) {
    if (!note.empty()) say("note: " + note);
  }
  initialise();
  if (plan_.manifest) restore_state();
  if (!config_.runtime.trace) return;
  session_->backend().set_trace(&trace_);
  session_->set_phases(&phases_);
}

models::FillFunction TrainRun::initial_values() {
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

void TrainRun::initialise() {
  const bool from_first_rank = config_.fsdp.sync_module_states;
  models::FillFunction fill;
  agree(rank_.world, [&] {
    if (from_first_rank && rank_.world.rank() != 0) return;
    fill = initial_values();
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

void TrainRun::save() {
  if (!config_.train.save) return;
  const PhaseScope phase(session_->phases(), "saving");
  const auto folder = directory_ / (session_->lora() ? "adapter" : "model");
  agree(rank_.world, [&] {  // that of a run which was stopped and goes on
    if (speaks()) std::filesystem::remove_all(folder);
  });
  for (const std::string& warning : save_model(*session_, folder, saved_)) {
    say("warning: " + warning);
  }
}

// The state of the checkpoint, on any number of ranks.
void TrainRun::restore_state() {
  const Manifest& manifest = *plan_.manifest;
  const bool with_changes = options_.resume_with_changes;
  std::vector<std::string> differences;
  const uint64_t base = hash_frozen(*session_);
  agree(rank_.world, [&] {
    differences = compare_data(manifest.data, data_.hashes(), with_changes);
    const bool same_base = base == manifest.base_hash;
    FSDP_CHECK(with_changes || same_base,
               "--resume: the parameters that are not trained ({}) have other values than those "
               "that the checkpoint belongs to ({})",
               base_of(*session_), manifest.base_path);
    const std::string model = models::config_json(model_, "");
    FSDP_CHECK(with_changes || model == manifest.model,
               "--resume: the model is another one than the checkpoint's; "
               "--resume-with-changes goes on all the same");
  });
  agree(rank_.world, [&] {
    Checkpoint checkpoint(plan_.checkpoint, config_.checkpoint.verify);
    restore(*session_, checkpoint, with_changes ? MissingState::kZero : MissingState::kError);
  });
  for (const std::string& line : differences) say("note: changed: " + line);
  say(fmt::format("resumed from {}: step {}", plan_.checkpoint.string(), manifest.step()));
  if (manifest.world_size != rank_.world.size()) {
    say(fmt::format("note: {} rank{} instead of {}: the run goes on to rounding",
                    rank_.world.size(), rank_.world.size() == 1 ? "" : "s", manifest.world_size));
  }
}

// Of the parameters that are not trained, where they come from; "": all are trained.
std::string TrainRun::base_of(Session& session) const {
  const std::vector<Parameter*> all = session.parameters();
  if (std::all_of(all.begin(), all.end(), [](const Parameter* p) { return p->trainable(); })) {
    return "";
  }
  if (config_.model.path.empty()) return fmt::format("from seed {}", config_.train.seed);
  return std::filesystem::absolute(config_.model.path).lexically_normal().string();
}

void TrainRun::make_directory() {
  directory_ = plan_.run_directory.empty()
                   ? make_run_directory(rank_.world, config_.runtime.run_dir, config_.runtime.name)
                   : plan_.run_directory;
  agree(rank_.world, [&] {
    if (!speaks()) return;
    lock_ = take_run_directory(directory_, checkpoint_folder(config_, directory_));
    if (!options_.resume.empty()) go_on_in_directory();
  });
  if (rank_.rings) rank_.rings->set_directory(directory_);
  write_run_arguments(rank_.world, directory_,
                      {.command = "train",
                       .config = options_.given.config,
                       .overrides = options_.overrides,
                       .local_ranks = options_.launch.local_ranks,
                       .threads = rank_.threads,
                       .resumed_from = plan_.manifest ? plan_.manifest->step() : 0});
  if (speaks()) write_file_atomically(directory_ / "config.yaml", config::to_yaml(plan_.config));
}

// What came after the checkpoint is done again, and a run that goes on is not at its end. A new
// directory gets the lines of the run that it begins in.
void TrainRun::go_on_in_directory() {
  namespace fs = std::filesystem;
  const fs::path of_before =
      (plan_.run_directory.empty() && plan_.manifest ? fs::path(plan_.manifest->run_directory)
                                                     : directory_) /
      "metrics.jsonl";
  const TrainProgress before = plan_.manifest ? plan_.manifest->progress : TrainProgress{};
  if (fs::exists(of_before)) {
    write_file_atomically(directory_ / "metrics.jsonl",
                          metrics_until(read_file(of_before), before.steps, before.validated_at));
  }
  fs::remove(directory_ / "metrics.json");
}

RunCheckpoints& TrainRun::checkpoints() {
  if (checkpoints_) return *checkpoints_;
  Manifest facts;
  facts.program = source_commit();
  facts.device = rank_.backend.cuda ? "cuda" : "cpu";
  facts.config = config::to_yaml(plan_.config);
  facts.model = models::config_json(model_, "");
  facts.data = data_.hashes();
  facts.base_path = base_of(*session_);
  checkpoints_.emplace(*session_, config_, directory_, std::move(facts));
  if (plan_.manifest) checkpoints_->go_on(plan_.checkpoint, plan_.manifest->metrics);
  return *checkpoints_;
}

int64_t TrainRun::save_every() const { return config_.checkpoint.every.steps; }

void TrainRun::write_checkpoint(const TrainProgress& progress) {
  try {
    const std::filesystem::path folder = checkpoints().write(progress);
    say(fmt::format("step {}: checkpoint {}", progress.steps, folder.string()));
  } catch (const AgreedError& error) {
    if (config_.checkpoint.required) throw;
    say(fmt::format("warning: step {}: no checkpoint: {}", progress.steps, error.what()));
  }
}

// checkpoint.load_best: what is saved are the weights of the best checkpoint.
void TrainRun::take_best(const TrainOutcome& outcome) {
  if (!config_.checkpoint.load_best || outcome.signal != 0) return;
  const auto& best = checkpoints().best();
  if (!best) return say("note: checkpoint.load_best: no checkpoint has the value to judge it by");
  agree(rank_.world, [&] {
    Checkpoint checkpoint(checkpoints_->folder_of(best->step), config_.checkpoint.verify);
    restore_weights(*session_, checkpoint);
  });
  say(fmt::format("the best checkpoint: step {}, {:.4f}", best->step, best->value));
}

// The model is worth more than the folder that somebody removed during the run.
void TrainRun::keep_directory() {
  agree(rank_.world, [&] {
    if (!speaks() || std::filesystem::is_directory(directory_)) return;
    std::filesystem::create_directories(directory_);
    write_file_atomically(directory_ / "config.yaml", config::to_yaml(plan_.config));
    say(fmt::format("note: {} was removed during the run; made again, without its metrics.jsonl",
                    directory_.string()));
  });
}

TrainOutcome TrainRun::train() {
  const int terminal = speaks() ? output_terminal(rank_.under_launcher) : -1;
  Progress progress(speaks() ? stdout : nullptr, terminal, config_.train.log_every);
  MetricsLog metrics = speaks() ? MetricsLog(directory_ / "metrics.jsonl") : MetricsLog();
  Trainer trainer(*session_,
                  {.steps = config_.train.steps,
                   .log_every = config_.train.log_every,
                   .eval_every = config_.train.eval_every.steps,
                   .schedule = config_.schedule(),
                   .steps_per_epoch = data_.steps_per_epoch(),
                   .samples_after = [this](int64_t steps) { return data_.samples_after(steps); },
                   .resume = plan_.manifest ? plan_.manifest->progress : TrainProgress{},
                   .save_every = save_every(),
                   .save = [this](const TrainProgress& p) { write_checkpoint(p); }},
                  progress, metrics);
  if (save_every() > 0) checkpoints();  // what is wrong with their place is better known now
  catch_interrupts();  // until here a signal ends the process at once: there is nothing to save
  try {
    const TrainOutcome outcome =
        trainer.run(data_.training(model_.shifted_labels), data_.validation(model_.shifted_labels));
    metrics.retry();
    if (!metrics.problem().empty()) say("warning: " + metrics.problem());
    return outcome;
  } catch (const AgreedError& error) {
    if (!checkpoints_ || checkpoints_->last().empty()) throw;
    throw AgreedError(
        fmt::format("{}; the last checkpoint is {}", error.what(), checkpoints_->last()));
  }
}

// Before anything large is asked for: a run that the machine cannot hold ends here, not in the
// hands of the kernel. Rank 0's prediction, which no other rank's exceeds.
void TrainRun::predict() {
  const std::vector<std::string> hosts = rank_.world.exchange(host_name());
  agree(rank_.world, [&] {
    if (!speaks()) return;
    PredictedData data = data_of(config_);
    data.rows = std::min(data.rows, data_.sequences());
    if (data.validation_rows > 0) {
      data.validation_rows = std::min(data.validation_rows, data_.validation_sequences());
    }
    data.prompt_tokens = static_cast<int64_t>(sample_prompt().size());
    const auto run = predicted_run(config_, session_options_, data, rank_.world.size());
    predicted_ = run->usage();
    if (rank_.backend.cuda) return;  // which says itself what it has
    const AvailableMemory memory = available_memory();
    const auto here = static_cast<int>(std::count(hosts.begin(), hosts.end(), host_name()));
    check_fits(*run, memory, memory.of_process ? rank_.local_ranks : here);
  });
}

// Collective.
MemoryReport TrainRun::memory_report() {
  MemoryReport memory = {.ledger = session_->backend().ledger().usage(),
                         .process_ranks = rank_.local_ranks,
                         .resident_growth = process_memory().peak_resident - resident_before_};
  struct OfRank {
    size_t peak, trace;
  };
  const OfRank mine = {memory.ledger.total_peak, bytes_of(trace_)};
  const std::vector<OfRank> of_process =
      rank_.local_ranks > 1 ? comm::exchange_values(rank_.world, mine) : std::vector<OfRank>{mine};
  for (const OfRank& rank : of_process) {
    memory.process_ledger += rank.peak;
    memory.trace += rank.trace;
  }
  if (!speaks()) return memory;
  memory.predicted = predicted_;
  memory.at_most = models::is_padding(model_, static_cast<int32_t>(model_.padding_row));
  return memory;
}

// What training and validation came to; without the memory, which saving and the sample take too.
RunSummary TrainRun::summarise(const TrainOutcome& outcome) {
  const StateHash hash = hash_state(*session_);
  if (!speaks()) return {};
  std::optional<CommunicationOverlap> overlap;
  if (config_.runtime.trace) overlap = measure_overlap(trace_.events());
  // It is of next tokens.
  const std::optional<double> bigram =
      model_.shifted_labels ? data_.bigram_entropy() : std::nullopt;
  return {
      .model = describe(model_),
      .strategy = std::string(choice_name(config_.fsdp.options.strategy)),
      .dtype = std::string(fsdp::name_of(config_.train.dtype)),
      .world_size = rank_.world.size(),
      .threads_per_rank = rank_.threads,
      .parameters = model_.parameter_count(),
      .steps = outcome.steps,
      .skipped = outcome.skipped,
      .interrupted = outcome.signal != 0,
      .true_tokens = outcome.true_tokens,
      .samples = outcome.samples,
      .epochs = static_cast<double>(outcome.steps) / static_cast<double>(data_.steps_per_epoch()),
      .wall_time_s = outcome.wall_time_s,
      .step_time_s = outcome.step_time_s,
      .train_loss = outcome.train_loss,
      .resumed_from = plan_.manifest ? plan_.manifest->step() : 0,
      .weights_hash = hex(hash.weights),
      .optimizer_hash = hex(hash.optimizer),
      .best_step = checkpoints_ && checkpoints_->best() ? std::optional(checkpoints_->best()->step)
                                                        : std::nullopt,
      .validation_loss = outcome.validation_loss,
      .best_validation_loss = outcome.best_validation_loss,
      .bigram_entropy = bigram,
      .collectives = rank_.world.rings()->totals(),
      .overlap = overlap};
}

// Collective.
void TrainRun::report(const TrainOutcome& outcome, RunSummary& summary) {
  const MemoryReport memory = memory_report();
  if (!speaks()) return;
  summary.predicted_memory = memory.predicted;
  summary.memory = memory.ledger;
  summary.resident_growth_bytes = memory.resident_growth;
  if (outcome.signal != 0) return;
  say(fmt::format("\n{}", format_losses(outcome, config_.train.log_every, summary.bigram_entropy)));
  say(format_memory_table(memory));
  if (summary.overlap) say(format_overlap(*summary.overlap));
}

std::vector<int32_t> TrainRun::sample_prompt() const {
  const data::Tokenizer& tokenizer = data_.tokenizer();
  std::vector<int32_t> prompt = tokenizer.encode(config_.sample.prompt);
  // Before the beginning of a document.
  if (prompt.empty() && tokenizer.end_of_text() >= 0) prompt = {tokenizer.end_of_text()};
  return prompt;
}

std::string TrainRun::sample() {
  const config::SampleSection& c = config_.sample;
  if (c.tokens == 0) return "";
  const PhaseScope phase(session_->phases(), "sample");
  const data::Tokenizer& tokenizer = data_.tokenizer();
  const std::vector<int32_t> prompt = sample_prompt();
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

void TrainRun::write_trace() {
  if (!config_.runtime.trace) return;
  session_->backend().synchronize(session_->backend().compute_stream());
  session_->backend().set_trace(nullptr);
  phases_.record();
  const int rank = rank_.world.rank();
  write_file_atomically(directory_ / fmt::format("trace.rank{}.json", rank), trace_.to_json(rank));
}

// The configuration says how ranks wait for each other, so it is read before they exist; what is
// wrong with it is said once they do.
int train_on_ranks(TrainOptions options) {
  requeue_until_training();
  ignore_failing_writes();  // the run goes on; main() says at its end that nobody read all of it
  ResumePlan plan;
  std::string mistake;
  try {
    const std::vector<config::Override> overrides = overrides_of(options.given);
    for (const config::Override& each : overrides) options.overrides.push_back(each.text);
    plan = plan_resume({.from = options.resume,
                        .with_changes = options.resume_with_changes,
                        .config_file = options.given.config,
                        .overrides = overrides});
  } catch (const std::exception& error) {
    mistake = message_of(error);
  }
  LaunchOptions how = plan.config.runtime.launch;
  how.local_ranks = options.launch.local_ranks;
  // The command alone: check_same_config() compares the rest.
  how.same_on_all = {options.launch.same_on_all.front()};
  return launch(how, [&](RankContext& rank) {
    agree(rank.world, [&] { FSDP_CHECK(mistake.empty(), "{}", mistake); });
    check_same_config(rank.world, plan.config);
    check_same_settings(rank.world, "checkpoints to go on from",
                        {"checkpoint: " + plan.checkpoint.string()});
    if (plan.finished) {
      if (rank.world.rank() == 0) {
        const config::TrainSection& train = plan.config.train;
        const std::string length = train.epochs > 0 ? fmt::format("{} epochs", train.epochs)
                                                    : fmt::format("{} steps", train.steps);
        std::printf("%s: this run has done its %s: nothing to go on with\n",
                    plan.run_directory.c_str(), length.c_str());
      }
      return 0;
    }
    return TrainRun(options, plan, rank).run();
  });
}

}  // namespace

void add_train_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<TrainOptions>();
  const Command command = app.add_command("train", "trains a model on text");
  add_rank_options(command, options->launch);
  add_config_options(command,
                     {FlagOf::kConfigured, FlagOf::kTrain, FlagOf::kComputing, FlagOf::kCollectives,
                      FlagOf::kTransport, FlagOf::kKernels},
                     options->given);
  command.add_option("--resume", options->resume,
                     "goes on from a run directory or one checkpoint, with its configuration; "
                     "auto: from runtime.run_dir, or starts there");
  command.add_flag("--resume-with-changes", options->resume_with_changes,
                   "also where the configuration makes it another computation");
  command.footer("Keys of the file and of --set, as section.key [default]:\n" +
                 config::config_help());
  command.when_chosen(
      [&chosen, options] { chosen = [options] { return train_on_ranks(*options); }; });
}

}  // namespace fsdp::tools
