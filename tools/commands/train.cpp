// fsdp train: from a configuration to a trained model and a run directory.
// Read next: tools/train/trainer.h (the loop), tools/train/train_data.h (the text).
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "comm/exchange.h"
#include "core/io/file.h"
#include "core/trace_phases.h"
#include "models/adapter_folder.h"
#include "models/weights.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/config/config.h"
#include "tools/data/text_stream.h"
#include "tools/generate/generation.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/load_model.h"
#include "tools/model_folders/save_model.h"
#include "tools/predict/memory_formula.h"
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
  TrainRun(const TrainOptions& options, const config::TrainConfig& config, RankContext& rank)
      : options_(options), config_(config), rank_(rank), data_(rank.world, config) {}

  int run();

 private:
  bool speaks() const { return rank_.world.rank() == 0; }
  void say(const std::string& text) {
    if (speaks()) std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }
  void make_session();
  FolderOptions saved_form();
  models::FillFunction initial_values();
  void initialise();
  void make_directory();
  void keep_directory();
  void save();
  TrainOutcome train();
  void summarise(const TrainOutcome& outcome);
  void sample();
  void write_trace();

  const TrainOptions& options_;
  const config::TrainConfig& config_;
  RankContext& rank_;
  TrainData data_;
  models::ModelConfig model_;
  FolderOptions saved_;  // of rank 0
  size_t resident_before_ = 0;
  Trace trace_;  // outlives the session, whose workers write into it
  TracePhases phases_{trace_};
  std::unique_ptr<Session> session_;
  std::filesystem::path directory_;
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
  const TrainOutcome outcome = train();
  if (outcome.signal != 0) {
    // A launcher makes SIGTERM of every signal.
    const char* const what = rank_.under_launcher       ? "a signal"
                             : outcome.signal == SIGINT ? "Ctrl-C"
                             : outcome.signal == SIGHUP ? "SIGHUP"
                                                        : "SIGTERM";
    say(fmt::format("stopped by {} after step {}", what, outcome.steps));
  }
  keep_directory();
  summarise(outcome);
  save();
  if (outcome.signal == 0) sample();
  write_trace();
  say(fmt::format("\nrun directory: {}", directory_.string()));
  return outcome.signal == 0 ? 0 : 128 + outcome.signal;
}

// Everything that can be wrong with the input is found here, before a run directory is made.
void TrainRun::make_session() {
  comm::Communicator& world = rank_.world;
  SessionOptions options;
  std::string vocabulary_note;
  agree(world, [&] {
    model_ = model_config(config_, data_.tokenizer().vocab_size());
    if (config_.model.path.empty()) model_.eos_token = data_.tokenizer().end_of_text();
    vocabulary_note = data_.check_vocabulary(model_.vocabulary);
    options = session_options(config_, model_, world.size(), rank_.backend);
    FSDP_CHECK(!options.lora || !config_.model.path.empty(),
               "lora.r: needs model.path, the model that the adapter belongs to");
    if (!speaks()) return;
    saved_ = saved_form();
    // An adapter is small.
    const int64_t saved_parameters = options.lora ? 0 : model_.parameter_count();
    check_run_directory(config_.runtime.run_dir,
                        saved_parameters * static_cast<int64_t>(size_of(saved_.dtype)));
  });
  resident_before_ = process_memory().resident;
  session_ = std::make_unique<Session>(world, options);
  for (const std::string& note :
       {preset_note(config_.model.preset), vocabulary_note, rank_.backend_note, world.notice()}) {
    if (!note.empty()) say("note: " + note);
  }
  initialise();
  if (!config_.runtime.trace) return;
  session_->backend().set_trace(&trace_);
  session_->set_phases(&phases_);
}

FolderOptions TrainRun::saved_form() {
  const DType master = accumulation_dtype(config_.train.dtype);
  const config::TrainSection& c = config_.train;
  const bool adapter = lora_config(config_).has_value();
  FSDP_CHECK(!adapter || c.max_shard_size == config::TrainSection().max_shard_size,
             "train.max_shard_size: {}: an adapter is one file", c.max_shard_size);
  // An adapter's tensors are no part of that folder.
  const bool of_folder = !c.save_dtype && !config_.model.path.empty() && !adapter;
  return {.dtype = of_folder ? dtype_of_weights(config_.model.path).value_or(master)
                             : c.save_dtype.value_or(master),
          .max_file_bytes = parse_file_size(c.max_shard_size, "train.max_shard_size"),
          .source = config_.model.path,
          .add_files = [this](const std::filesystem::path& folder) {
            data::copy_tokenizer_files(data_.tokenizer_name(), folder);
          }};
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
  });
  agree(rank_.world, [&] {
    from_first_rank ? session_->initialise_from_first_rank(fill) : session_->initialise(fill);
  });
}

void TrainRun::save() {
  const PhaseScope phase(session_->phases(), "saving");
  const auto folder = directory_ / (session_->lora() ? "adapter" : "model");
  for (const std::string& warning : save_model(*session_, folder, saved_)) {
    say("warning: " + warning);
  }
}

void TrainRun::make_directory() {
  directory_ = make_run_directory(rank_.world, config_.runtime.run_dir, config_.runtime.name);
  if (rank_.rings) rank_.rings->set_directory(directory_);
  write_run_arguments(rank_.world, directory_,
                      {.command = "train",
                       .config = options_.given.config,
                       .overrides = options_.overrides,
                       .local_ranks = options_.launch.local_ranks,
                       .threads = rank_.threads});
  if (speaks()) write_file_atomically(directory_ / "config.yaml", config::to_yaml(config_));
}

// The model is worth more than the folder that somebody removed during the run.
void TrainRun::keep_directory() {
  agree(rank_.world, [&] {
    if (!speaks() || std::filesystem::is_directory(directory_)) return;
    std::filesystem::create_directories(directory_);
    write_file_atomically(directory_ / "config.yaml", config::to_yaml(config_));
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
                   .eval_every = config_.train.eval_every,
                   .schedule = config_.schedule()},
                  progress, metrics);
  catch_interrupts();  // until here a signal ends the process at once: there is nothing to save
  return trainer.run(data_.training(model_.shifted_labels),
                     data_.validation(model_.shifted_labels));
}

void TrainRun::summarise(const TrainOutcome& outcome) {
  const MemoryPlan plan = memory_plan(session_->sharded(), model_, config_.optimizer(),
                                      positions_of_pass(config_, rank_.world.size()));
  MemoryReport memory = {.predicted = predicted_memory(plan),
                         .upper_bound = upper_bounds(plan),
                         .ledger = session_->backend().ledger().usage(),
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
  if (!speaks()) return;
  std::optional<CommunicationOverlap> overlap;
  if (config_.runtime.trace) overlap = measure_overlap(trace_.events());

  // It is of next tokens.
  const std::optional<double> bigram =
      model_.shifted_labels ? data_.bigram_entropy() : std::nullopt;
  write_summary(directory_ / "metrics.json",
                {.model = describe(model_),
                 .strategy = std::string(choice_name(config_.fsdp.options.strategy)),
                 .dtype = std::string(fsdp::name_of(config_.train.dtype)),
                 .world_size = rank_.world.size(),
                 .threads_per_rank = rank_.threads,
                 .parameters = model_.parameter_count(),
                 .steps = outcome.steps,
                 .skipped = outcome.skipped,
                 .interrupted = outcome.signal != 0,
                 .true_tokens = outcome.true_tokens,
                 .wall_time_s = outcome.wall_time_s,
                 .step_time_s = outcome.step_time_s,
                 .train_loss = outcome.train_loss,
                 .validation_loss = outcome.validation_loss,
                 .bigram_entropy = bigram,
                 .memory = memory.ledger,
                 .resident_growth_bytes = memory.resident_growth,
                 .collectives = rank_.world.rings()->totals(),
                 .overlap = overlap});
  if (outcome.signal != 0) return;
  say(fmt::format("\n{}", format_losses(outcome, config_.train.log_every, bigram)));
  say(format_memory_table(memory));
  if (overlap) say(format_overlap(*overlap));
}

void TrainRun::sample() {
  const config::SampleSection& c = config_.sample;
  if (c.tokens == 0) return;
  const PhaseScope phase(session_->phases(), "sample");
  const data::Tokenizer& tokenizer = data_.tokenizer();
  std::vector<int32_t> prompt = tokenizer.encode(c.prompt);
  // Before the beginning of a document.
  if (prompt.empty() && tokenizer.end_of_text() >= 0) prompt = {tokenizer.end_of_text()};
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
  say(fmt::format("sample: {}|{}", c.prompt, data::text_after(tokenizer, prompt, tokens)));
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
  ignore_broken_pipes();  // the run goes on; main() says at its end that nobody read all of it
  config::TrainConfig config;
  std::string mistake;
  try {
    const std::vector<config::Override> overrides = overrides_of(options.given);
    for (const config::Override& each : overrides) options.overrides.push_back(each.text);
    config = config::read_config(options.given.config, overrides);
    resolve_paths(config, options.given.config);
  } catch (const std::exception& error) {
    mistake = message_of(error);
  }
  LaunchOptions how = config.runtime.launch;
  how.local_ranks = options.launch.local_ranks;
  // The command alone: check_same_config() compares the rest.
  how.same_on_all = {options.launch.same_on_all.front()};
  return launch(how, [&](RankContext& rank) {
    agree(rank.world, [&] { FSDP_CHECK(mistake.empty(), "{}", mistake); });
    check_same_config(rank.world, config);
    return TrainRun(options, config, rank).run();
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
  command.footer("Keys of the file and of --set, as section.key [default]:\n" +
                 config::config_help());
  command.when_chosen(
      [&chosen, options] { chosen = [options] { return train_on_ranks(*options); }; });
}

}  // namespace fsdp::tools
