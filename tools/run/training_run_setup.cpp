// The set-up of a run: everything that can be wrong with the input, the memory that the run will
// need and the limit that it keeps, its session and values, its folder. The result is a session
// ready for the first step, in a directory of this run.
#include <algorithm>
#include <random>

#include "comm/exchange.h"
#include "core/machine_error.h"
#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "models/adapter_folder.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/checkpoint/run_checkpoints.h"
#include "tools/config/step_shape.h"
#include "tools/launch/batch_job.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/model_folders/load_model.h"
#include "tools/predict/memory_limit.h"
#include "tools/predict/predicted_run.h"
#include "tools/report/run_reader.h"
#include "tools/run/run_parts.h"
#include "tools/run/training_run.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {

// ---------------------------------------------------------------------------- Memory

std::vector<int32_t> sample_prompt(const std::string& text, const data::Tokenizer& tokenizer) {
  std::vector<int32_t> prompt = tokenizer.encode(text);
  // Before the beginning of a document.
  if (prompt.empty() && tokenizer.end_of_text() >= 0) prompt = {tokenizer.end_of_text()};
  return prompt;
}

// `least`: what the run takes of its data whatever there is of it; a run that does not need too
// much with this is not refused yet. Collective.
void TrainingRun::refuse(const PredictedData& data, const data::Tokenizer& tokenizer,
                         const std::optional<PredictedData>& least) {
  const std::string& wanted = config_.runtime.memory_limit;
  const bool on_gpu = rank_.backend.cuda.has_value();
  const MemoryLimit limit = limit_of_device(rank_, wanted);
  std::optional<MemoryLimit> host;
  if (on_gpu) host = limit_of_host(rank_, "auto");
  std::string message;
  on_first_rank([&] {
    const auto with = [&](const PredictedData& some) {
      return RunPlan(config_, vocabulary_with(config_, tokenizer), some, rank_.world.size(),
                     rank_.backend);
    };
    if (least && with(*least).run().bytes <= limit.bytes) return;
    message = refusal(with(data), limit, host);
  });
  message = comm::from_first_rank(rank_.world, message);
  if (!message.empty()) throw AgreedError(message, status::kDoesNotFit);
  limit_ = limit.bytes;
}

// Before the text is tokenised, which may take longer than all that is known by then: the model,
// and for most texts the batches, of others at least one row. What else is wrong is said where it
// is used. Collective.
void TrainingRun::refuse_early(const data::Tokenizer& tokenizer) {
  PredictedData data = data_of(config_, rank_.world.size());
  data.prompt_tokens = std::ssize(sample_prompt(config_.sample.prompt, tokenizer));
  // One row of them all; it has two tokens where it is not filled up.
  PredictedData least = data;
  const bool filled =
      !config_.data.has_rows_of_any_length() || config_.data.padded_to() != data::PadTo::kLongest;
  least.usual = {.rows = 1, .length = filled ? config_.data.sequence_length : 2};
  least.batches = {least.usual};
  if (!least.validation_batches.empty()) least.validation_batches = {least.usual};
  struct Known {
    bool model, batches;
  } known = {true, false};
  with_patience([&] {
    try {
      const models::ModelConfig model = model_config(config_, vocabulary_with(config_, tokenizer));
      session_options(config_, model, rank_.world.size(), rank_.backend);
    } catch (const std::exception& error) {
      if (may_pass(config_.runtime.patience(), error)) throw;
      known.model = false;
    }
    known.batches = fills_a_batch(config_, data.usual.rows);
  });
  known = comm::exchange_values(rank_.world, known).front();
  if (known.model) refuse(data, tokenizer, known.batches ? std::nullopt : std::optional(least));
}

// Before anything large is asked for: a run that the machine cannot hold ends here, not in the
// hands of the kernel. Rank 0's prediction, which no other rank's exceeds. Collective.
void TrainingRun::predict() {
  PredictedData data = data_of(config_, rank_.world.size());
  data.kind = kind_of_rows(config_.data, data_.pairs_in_sequence());
  data.first_step = kept().steps;
  const int64_t steps = config_.train.steps;
  const auto largest = data_.largest_batches(batch_of_step(left_out(), steps));
  data.usual = largest.front();
  data.batches = shapes_of(
      steps - data.first_step, data.usual.rows,
      [&, out = left_out()](int64_t i) {
        return data_.shape_of(batch_of_step(out, data.first_step + i));
      },
      largest);
  data.evaluated = data_.validation_batches();
  if (data.evaluated > 0) {
    data.validation_batches = shapes_of(
        data.evaluated, data.usual.rows, [&](int64_t i) { return data_.validation_shape_of(i); },
        data_.largest_validation_batches());
  }
  data.prompt_tokens = std::ssize(sample_prompt(config_.sample.prompt, data_.tokenizer()));
  const std::vector<std::string> hosts = rank_.world.exchange(host_name());
  uint64_t host_needed = 0, needed = 0;
  on_first_rank([&] {
    const auto run = predicted_run(config_, session_options_, data, rank_.world.size());
    predicted_ = run->usage();
    predicted_host_ = run->host_usage();
    predicted_file_ = run->file_usage();
    host_needed = run->host_needed();
    needed = run->needed();
    // Elsewhere a rank says it when it makes its file.
    check_disk(config_.fsdp.offload_folder, run->file_needed(),
               static_cast<int>(std::count(hosts.begin(), hosts.end(), host_name())));
  });
  host_needed_ = comm::exchange_values(rank_.world, host_needed).front();
  needed_ = comm::exchange_values(rank_.world, needed).front();
  refuse(data, data_.tokenizer());
}

// Collective.
std::vector<GpuMemory::Reading> TrainingRun::gpu_memory_of_ranks() {
  const size_t held = session_->backend().ledger().usage().total_current;
  return comm::exchange_values(rank_.world, gpu_memory_->read(held));
}

// Communicators are made before anything large. Collective.
void TrainingRun::keep_to_what_nccl_left() {
  if (!gpu_memory_) return;
  const std::vector<GpuMemory::Reading> readings = gpu_memory_of_ranks();
  say(after_communicators(readings));
  const size_t left = std::ranges::min(readings, {}, &GpuMemory::Reading::left).left;
  limit_ = std::min(limit_, left);
  if (needed_ <= left) return;
  throw AgreedError(fmt::format("this run needs {} per rank, but NCCL's communicators have left {} "
                                "of its GPU; runtime.gpu_transport: host does without them",
                                byte_size_text(needed_), byte_size_text(left)),
                    status::kDoesNotFit);
}

// Collective.
void TrainingRun::tell_what_libraries_took() {
  if (!gpu_memory_) return;
  Backend& backend = session_->backend();
  backend.synchronize(backend.compute_stream());  // what the step gave back is given back
  say_beside(after_step(gpu_memory_of_ranks(), kNcclBytes));
  gpu_memory_.reset();
}
// ---------------------------------------------------------------------------- Session and values

// Everything that can be wrong with the input is found here, before a run directory is made.
void TrainingRun::make_session() {
  comm::Communicator& world = rank_.world;
  PlacedOptions& options = session_options_;
  std::string vocabulary_note;
  with_patience([&] {
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
  say_notes({vocabulary_note, rank_.backend_note, world.notice(),
             session_->file() ? file_notice(*session_->file()) : ""});
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
  const int64_t done = kept().steps;
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
  if (speaks()) say_notes(warnings_about(config_.model.path));
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

// That the run is the one that the checkpoint belongs to.
void TrainingRun::check_state() const {
  const Manifest& manifest = *plan_.manifest;
  check_same_run(
      {.model = model_,
       .adapter_dropout = session_->lora() ? session_->lora()->dropout : 0,
       .order_follows_ranks = config_.data.shuffle_rule == data::ShuffleRule::kTorch,
       .shape = config::step_shape(config_, rank_.world.size()),
       .before = config::step_shape(config::parse_config(manifest.config, kManifestName, {}),
                                    manifest.world_size),
       .model_before = manifest.model});
}

// The state of the checkpoint, on any number of ranks.
void TrainingRun::restore_state() {
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
    if (!with_changes) check_state();
  });
  read_state();
  durable_step_ = manifest.step();
  for (const std::string& line : differences) say("note: changed: " + line);
  say(fmt::format("resumed from {}: step {}", plan_.checkpoint.string(), manifest.step()));
  if (manifest.device != device()) {
    say(fmt::format("note: {} instead of {}: the run continues up to rounding", device(),
                    manifest.device));
  }
  if (manifest.world_size != rank_.world.size()) {
    say(fmt::format("note: {} instead of {}: the run continues {}",
                    counted(rank_.world.size(), "rank"), manifest.world_size,
                    config_.fsdp.options.fixed_order ? "bit for bit" : "up to rounding"));
  }
}

// Another model is the user's mistake. What goes wrong after that is the checkpoint's.
void TrainingRun::read_state() {
  std::optional<Checkpoint> checkpoint;
  const MissingState missing =
      options_.resume_with_changes ? MissingState::kZero : MissingState::kError;
  agree(rank_.world, [&] {
    checkpoint.emplace(plan_.checkpoint, config_.checkpoint.verify, config_.runtime.patience());
    check_tensors(*session_, *checkpoint, missing);
  });
  try {
    agree(rank_.world, [&] { restore(*session_, *checkpoint, missing); });
  } catch (const AgreedError& error) {
    if (!plan_.falls_back || error.cause() != Cause::kPerson) throw;
    throw DamagedCheckpoint(error.what());
  }
}
// ---------------------------------------------------------------------------- Directory

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
  on_first_rank([&] {
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
    say_notes(go_on_in_directory(directory_, before, kept(),
                                 {config_.train.log_every.steps, config_.train.steps}));
  });
  say_notes({locks_.note});
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
                       .restarts = rank_.before.count(),
                       .job = batch_job(),
                       .resumed_from = from,
                       .effective_batch = shape.batch,
                       .rows_per_pass = shape.rows_per_pass,
                       .micro_steps = shape.micro_steps,
                       .facts = facts()},
                      config_.runtime.patience());
  on_first_rank([&] {
    write_file_atomically(directory_ / "config.yaml", stored_config());
    write_skipped_rows(directory_, data_.skipped_rows());
    begin_progress();
  });
}

// Of rank 0.
void TrainingRun::begin_progress() {
  const auto file = directory_ / "progress.json";
  const TrainTotals done = kept();
  RunProgress begin = {.step = done.steps, .wall_time_s = done.wall_time_s};
  try {
    if (is_there(file)) {
      const RunProgress before = read_progress(file);
      begin = begin_again(before, done, rolled_back_ ? 0 : rank_.before.ended);
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
  const bool was_seen = !rolled_back_ && (before.seen > 0 || rank_.before.count() == 1);
  if (end.status < 0 && was_seen) end.status = rank_.before.status;
  if (was_seen && !rank_.before.cause.empty()) end.cause = rank_.before.cause;
  if (rolled_back_) end.cause = "rolled back";
  if (end.cause.empty()) {
    end.cause = end.status > 128 ? fmt::format("killed by signal {}", end.status - 128)
                                 : "it has not said why";
  }
  if (end.time == 0) end.time = rank_.before.ended > 0 ? rank_.before.ended : before.seen;
  // That start may have completed its line and not progress.json. Its pause counts with this start,
  // so the line must not have it too.
  if (before.seen == 0) complete_failure(directory_, 0, 0);
  append_failure(directory_, {.end = end,
                              .restart = rank_.before.count(),
                              .step = before.step,
                              .steps_lost = std::max(before.step - begin.step, int64_t{0}),
                              .lost_s = begin.costs.lost_s - before.costs.lost_s,
                              .detection_s = begin.costs.detection_s - before.costs.detection_s});
}

// What is wrong with their place is better known before the first step.
void TrainingRun::place_checkpoints() {
  if (!writes_checkpoints()) return;
  const config::CheckpointSection& section = config_.checkpoint;
  const bool asked =
      section.every || section.async || !section.folder.empty() || config_.train.rolls_back();
  const bool one_process = rank_.local_ranks == rank_.world.size();
  try {
    check_room();
    if (asked) checkpoints();
    if (!asked && !one_process) {
      check_shared_folder(rank_.world, directory_, kLatestName, config_.runtime.patience());
    }
  } catch (const AgreedError& error) {
    // Where a run goes on, its configuration was right, and the disk may have room later.
    const bool goes_on = config_.runtime.goes_on;
    check_room_of_model();
    if (asked) {
      throw AgreedError(error.what(), error.status(), goes_on ? Cause::kMachine : error.cause());
    }
    without_checkpoints_ = !goes_on;
    say(fmt::format("note: this run writes no checkpoints{}: {}", goes_on ? " for now" : "",
                    error.what()));
  }
}

void TrainingRun::check_room_of_model() {
  agree(rank_.world, [&] {
    if (!speaks()) return;
    const std::string missing =
        missing_room(directory_, 0, 0, static_cast<uint64_t>(saved_bytes()));
    if (!missing.empty() && config_.runtime.goes_on)
      throw MachineError("runtime.run_dir: " + missing);
    FSDP_CHECK(missing.empty(), "runtime.run_dir: {}", missing);
  });
}

void TrainingRun::check_room() {
  const uint64_t bytes = checkpoint_bytes(*session_);
  const std::filesystem::path folder = checkpoint_folder(config_, directory_);
  const int64_t beside = config_.checkpoint.folder.empty() ? saved_bytes() : 0;
  on_first_rank([&] {
    const int64_t done = kept().steps;
    const auto there = is_folder(folder) ? checkpoints_in(folder).size() : 0;
    const int64_t count = checkpoints_to_come(config_.checkpoint, config_.train.steps - done,
                                              static_cast<int64_t>(there));
    const std::string missing = missing_room(folder, bytes, count, static_cast<uint64_t>(beside));
    FSDP_CHECK(missing.empty(), "checkpoint.every: {}", missing);
  });
}
// ---------------------------------------------------------------------------- What the run is

// Every rank but the first, which speaks for the run, has one line; in their order.
void TrainingRun::introduce_ranks() {
  for (int rank = 1; rank < rank_.world.size(); ++rank) {
    if (rank == rank_.world.rank()) options_.say(describe_rank(rank, gpu(), rank_.threads));
    rank_.world.barrier();
  }
}

// What the run is, before it begins.
void TrainingRun::introduce() {
  const std::string means = rank_.backend.cuda
                                ? (config_.runtime.launch.share_gpus ? "on GPUs" : "a GPU each")
                                : counted(rank_.threads, "thread") + " each";
  const DType dtype = config_.train.dtype;
  const DType masters = config_.train.master_dtype.value_or(accumulation_dtype(dtype));
  say(fmt::format("{}; {} on {}, {}, {}, master weights in {}", describe(model_),
                  choice_name(config_.fsdp.options.strategy), counted(rank_.world.size(), "rank"),
                  means, fsdp::name_of(dtype), fsdp::name_of(masters)));
  for (const std::string& line : device_snapshot(rank_.world, gpu())) say(line);
  hosts_ = rank_.world.exchange(host_name());
  const comm::GroupSizes groups = comm::group_sizes(session_options_.fsdp, rank_.world.size());
  say_notes({spread_groups(hosts_, groups.shards)});
  introduce_ranks();
  if (!rank_.backend.cuda || session_->sharded().options().host) {
    say(fmt::format("{} on the CPU: {} arithmetic, {} a rank",
                    optim::name_of(session_options_.optimizer.kind), cpu_instruction_set(),
                    counted(rank_.threads, "thread")));
  }
  say_notes({describe_trained(session_->parameters())}, "");
  say(config::step_shape(config_, rank_.world.size()).text());
  if (!config_.data.is_tokens()) {
    say(fmt::format("tokenizer: {} ({} tokens)", data_.tokenizer_name(),
                    data_.tokenizer().vocab_size()));
  }
  say_notes(data_.remarks(), "");
  say_notes(remarks(config_, model_, rank_.world.size(), data_.sequences()));
  say_notes(plan_.notes);
  say_notes(plan_.warnings, "warning: ");
  for (const auto& [first, end] : left_out()) {
    say(
        fmt::format("note: batches {} to {} of the training data (samples {} to {}) are left out, "
                    "by a rollback",
                    first + 1, end, data_.samples_after(first) + 1, data_.samples_after(end)));
  }
}

}  // namespace fsdp::tools
