// Contract: tools/checkpoint/resume.h.
#include "tools/checkpoint/resume.h"

#include <fmt/ranges.h>

#include "core/io/file.h"
#include "core/io/shard_index.h"
#include "core/machine_error.h"
#include "core/text/counted.h"
#include "models/config.h"
#include "models/hub_names.h"
#include "tools/checkpoint/run_checkpoints.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/config/guests.h"
#include "tools/config/options.h"
#include "tools/data/chat/chat_files.h"
#include "tools/data/row_template.h"
#include "tools/launch/launch.h"
#include "tools/report/run_reader.h"
#include "tools/train/data_paths.h"
#include "tools/train/model_shape.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.yaml";

// ---------------------------------------------------------------------------- Configurations

// Whether another value of the option computes the same, up to the order of sums.
bool is_free(config::OnResume on_resume, const config::TrainConfig& before,
             const config::TrainConfig& after) {
  const config::TrainSection &old = before.train, &now = after.train;
  switch (on_resume) {
    case config::OnResume::kFreeUnlessFixedOrder:
      return !after.fsdp.options.fixed_order;
    case config::OnResume::kFreeInPasses:
      return old.rows_per_pass > 0 && now.rows_per_pass > 0 && !(old.batch && now.batch);
    case config::OnResume::kAsSection:
    case config::OnResume::kRefused:
      return false;
    case config::OnResume::kFree:
    case config::OnResume::kLength:
    case config::OnResume::kOwn:
      return true;
  }
  return false;
}

// The schedule's end follows the run's unless it has its own. Both are in steps.
std::string note_on_schedule(const config::TrainConfig& before, const config::TrainConfig& after,
                             int64_t updates) {
  const double old_rate = before.schedule().rate(updates), rate = after.schedule().rate(updates);
  if (old_rate == rate) return "the learning rate of the next step stays as it was";
  return fmt::format(
      "the schedule ends with it: the learning rate of the next step is {:g}, it would have been "
      "{:g}; train.schedule.total keeps the schedule",
      rate, old_rate);
}

std::string length_text(const config::TrainSection& c) {
  return c.epochs > 0 ? counted(c.epochs, "epoch") : counted(c.steps, "step");
}

// One line for train.steps and train.epochs, of which one counts. Steps of an epoch are known with
// the text, which is read later.
std::string note_on_length(config::TrainConfig before, const config::TrainConfig& after,
                           const Manifest& manifest) {
  const bool epochs = before.train.epochs > 0 || after.train.epochs > 0;
  const std::string line =
      epochs ? fmt::format("length of the run: {} -> {}", length_text(before.train),
                           length_text(after.train))
             : fmt::format("train.steps: {} -> {}", before.train.steps, after.train.steps);
  if (after.train.schedule.total > 0 && before.train.schedule.total == after.train.schedule.total) {
    return line + "; the learning rate of the next step stays as it was";
  }
  if (after.train.epochs > 0 || (before.train.epochs > 0 && manifest.total_steps == 0)) {
    return line + "; the schedule ends with it (train.schedule.total)";
  }
  if (before.train.epochs > 0) before.train.steps = manifest.total_steps;
  const int64_t updates = manifest.progress.steps - manifest.progress.skipped;
  return line + "; " + note_on_schedule(before, after, updates);
}

std::vector<std::string> notes_on_changes(const config::TrainConfig& before,
                                          const config::TrainConfig& after,
                                          const Manifest& manifest, bool with_changes) {
  std::vector<std::string> notes, refused;
  bool length_noted = false;
  for (const ConfigChange& change : config_changes(before, after)) {
    if (change.on_resume == config::OnResume::kLength) {
      if (!length_noted) notes.push_back("changed: " + note_on_length(before, after, manifest));
      length_noted = true;
      continue;
    }
    const std::string line = fmt::format("{}: {} -> {}", change.key, change.before, change.after);
    if (change.refused) refused.push_back(line);
    notes.push_back("changed: " + line);
  }
  FSDP_CHECK(with_changes || refused.empty(),
             "--resume: the run would compute something else than before; --resume-with-changes "
             "continues anyway: {}",
             fmt::join(refused, ", "));
  return notes;
}

// ---------------------------------------------------------------------------- Folders

bool is_run(const fs::path& folder) {
  return is_there(folder / kConfigName) || is_there(folder / "run_args.json");
}

// Why a checkpoint cannot be read; "": its files have the right sizes. Damage is what the manifest
// says. SystemError where the file system cannot tell, OtherFormat where another program can.
std::string problem_of(const fs::path& checkpoint, std::optional<Manifest>& manifest) {
  try {
    manifest = read_manifest(checkpoint);
    for (const BlockChecksums& file : manifest->files)
      BlockReader(checkpoint, file, false, {.retries = 0});
    return "";
  } catch (const OtherFormat&) {  // the run would write another one over it, sooner or later
    throw;
  } catch (const SystemError& error) {
    if (error.code() != ENOENT) throw;
    manifest.reset();
    return error.what();
  } catch (const Error& error) {
    manifest.reset();
    return error.what();
  }
}

// Why a checkpoint that can be read is none that the run may go on from, though it lies there.
std::string stranger_in(const fs::path& checkpoint, int64_t step, const Manifest& manifest,
                        const RunRecord& record) {
  if (manifest.step() != step) {
    return fmt::format("{}: a copy: it holds step {}", checkpoint.string(), manifest.step());
  }
  if (record.id.empty() || manifest.run.empty() || record.id == manifest.run) return "";
  return fmt::format("{}: of another run ({})", checkpoint.string(), manifest.run_directory);
}

// Takes the newest that can be read; returns what is wrong with newer ones. A folder without a
// manifest counts: a checkpoint has its name when it is complete, so somebody has removed it.
std::vector<std::string> choose_newest(const ResumeRequest& request, const fs::path& folder,
                                       const RunRecord& record, ResumePlan& plan) {
  std::vector<std::string> damaged;
  const std::map<int64_t, fs::path> all = step_folders_in(folder);
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    const auto found = request.damaged.find(at->second);
    const std::string problem =
        found != request.damaged.end() ? found->second : problem_of(at->second, plan.manifest);
    const std::string stranger =
        problem.empty() ? stranger_in(at->second, at->first, *plan.manifest, record) : "";
    if (problem.empty() && stranger.empty()) {
      plan.checkpoint = at->second;
      plan.falls_back = true;
      return damaged;
    }
    if (problem.empty()) plan.notes.push_back(stranger + "; it is left out");
    if (!problem.empty()) damaged.push_back(problem);
  }
  plan.manifest.reset();
  return damaged;
}

// What was passed over on the way to the checkpoint of the plan is lost work.
void check_steps_back(const std::vector<std::string>& damaged, ResumePlan& plan) {
  const auto back = static_cast<int64_t>(damaged.size());
  const int64_t most = plan.config.checkpoint.max_steps_back;
  FSDP_CHECK(back <= most,
             "--resume: {} checkpoints that are newer than {} cannot be read, expected at most {} "
             "(checkpoint.max_steps_back): {}",
             back, plan.checkpoint.string(), most, fmt::join(damaged, "; "));
  for (const std::string& problem : damaged) {
    plan.warnings.push_back(problem + "; the checkpoint before it is taken");
  }
}

// The last complete checkpoint is noted: a folder that somebody has removed is work that is done
// again.
void add_missing(const RunRecord& record, const fs::path& folder, const ResumePlan& plan,
                 std::vector<std::string>& damaged) {
  if (!record.last || !plan.manifest || record.last->step <= plan.manifest->step()) return;
  const fs::path missing = folder / fmt::format("step-{}", record.last->step);
  if (is_folder(missing)) return;
  damaged.push_back(missing.string() + ": the last complete checkpoint does not exist any more");
}

// A run that has done all its steps needs none of them.
void note_damaged(const std::vector<std::string>& damaged, ResumePlan& plan) {
  plan.notes.insert(plan.notes.end(), damaged.begin(), damaged.end());
}

bool is_finished(const RunRecord& record, const config::TrainConfig& config) {
  const bool done = config.train.epochs > 0
                        ? record.epochs >= static_cast<double>(config.train.epochs)
                        : record.steps >= config.train.steps;
  return record.ended && done && !record.interrupted;
}

config::TrainConfig given_config(const ResumeRequest& request, ResumePlan& plan) {
  config::TrainConfig config = config::read_config(request.config_file, request.overrides);
  for (std::string& note : resolve_paths(config, request.config_file)) {
    const bool said = std::find(plan.notes.begin(), plan.notes.end(), note) != plan.notes.end();
    if (!said) plan.notes.push_back(std::move(note));  // the file may be read twice
  }
  return config;
}

// ---------------------------------------------------------------------------- The three kinds

void take_run(const fs::path& run_directory, RunRecord& record, ResumePlan& plan) {
  record = read_run_record(run_directory);
  plan.run_directory = run_directory;
  plan.run = record.id;
  plan.notes.insert(plan.notes.end(), record.notes.begin(), record.notes.end());
}

void check_owner(const config::TrainConfig& config, ResumePlan& plan) {
  const std::string note = check_own_checkpoints(config, plan.run, plan.run_directory);
  if (!note.empty()) plan.notes.push_back(note);
}

// A run that was killed before its first checkpoint starts again where it had started: at the
// checkpoint of another run, or at step 1.
void start_again(const ResumeRequest& request, const RunRecord& record,
                 const std::vector<std::string>& damaged, ResumePlan& plan) {
  const std::string where = plan.run_directory.string();
  // A start that went on from one of this run's own had one.
  const bool own = record.origin.step > 0 && record.origin.run == record.id;
  const std::optional<CheckpointOfRun> last = record.last ? record.last
                                              : own       ? std::optional(record.origin)
                                                          : std::nullopt;
  if (!request.from_scratch && (last || !damaged.empty())) {
    std::vector<std::string> why = damaged;
    if (last) why.insert(why.begin(), fmt::format("that of step {} was complete", last->step));
    // A folder that is elsewhere has gone as a whole; `fsdp launch` has just seen a checkpoint; or
    // nobody was there to remove them. Their disk may come back.
    const fs::path& elsewhere = plan.config.checkpoint.folder;
    const StartsBefore& before = request.before;
    const bool away = !is_folder(checkpoint_folder(plan.config, plan.run_directory));
    const bool known = before.durable_step > 0 || (!elsewhere.empty() && !is_there(elsewhere));
    const bool gone = (before.count() > 0 && away) || (damaged.empty() && known);
    throw AgreedError(
        fmt::format("--resume auto: {}: no checkpoint can be read: {}{}; --restart-from-scratch "
                    "begins again at step 1",
                    where, fmt::join(why, "; "),
                    gone ? "; nothing is there now: has the mount gone?" : ""),
        status::kFailed, gone ? Cause::kMachine : Cause::kPerson);
  }
  if (is_beginning_of_run(plan.run_directory)) return;
  const CheckpointOfRun& origin = record.origin;
  if (origin.step == 0 || request.from_scratch) {
    plan.notes.push_back(where + ": no checkpoint to go on from: the run begins at step 1");
    return;
  }
  plan.checkpoint = origin.path;
  std::string problem = problem_of(plan.checkpoint, plan.manifest);
  if (problem.empty() && plan.manifest->run != origin.run) {
    problem = "a checkpoint of a third run lies there now";
  }
  FSDP_CHECK(
      problem.empty(),
      "--resume auto: {}: this run began at {}, step {} of another run, and has no checkpoint "
      "of its own: {}; --restart-from-scratch begins at step 1",
      where, origin.path, origin.step, problem);
  plan.notes.push_back(
      fmt::format("{}: no checkpoint of its own: the run begins again at {}", where, origin.path));
}

// The last checkpoint may be younger than what this host knows of the folder. Nobody waits for
// one that a person may have removed.
void wait_for_last(const ResumeRequest& request, const fs::path& folder, const RunRecord& record,
                   const IoPatience& patience) {
  if (request.before.count() == 0 || !record.last) return;
  sees_within(patience.over, [&] { return step_folders_in(folder).contains(record.last->step); });
}

bool has_runs_in(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  return std::ranges::any_of(names, [&](const auto& name) { return is_run_folder(folder / name); });
}

// A file system that is not mounted looks like a run that never was. Who knows better does not
// begin anew: a later start may find it. Slurm starts a job again, possibly on another host, whose
// first start may have made nothing; the folder above is then known by its other runs.
void check_not_gone(const ResumeRequest& request, const fs::path& directory) {
  if (request.from_scratch) return;
  const bool empty = !is_there(directory) || is_beginning_of_run(directory);
  if (request.before.durable_step > 0 && empty) {
    throw AgreedError(
        fmt::format("--resume auto: {}: the run is not there, which had a checkpoint of step {}: "
                    "has the mount gone? --restart-from-scratch begins again at step 1",
                    directory.string(), request.before.durable_step),
        status::kFailed, Cause::kMachine);
  }
  if (request.before.by_slurm == 0 || is_there(directory)) return;
  if (has_runs_in(fs::absolute(directory / "").parent_path().parent_path())) return;
  throw AgreedError(
      fmt::format("--resume auto: {}: is not there, though Slurm has started this job before "
                  "(SLURM_RESTART_COUNT={}): has the mount gone? Where the run has never begun: "
                  "mkdir -p {}",
                  directory.string(), request.before.by_slurm, directory.string()),
      status::kFailed, Cause::kMachine);
}

void plan_auto(const ResumeRequest& request, IoPatience& patience, RunRecord& record,
               ResumePlan& plan) {
  plan.config = given_config(request, plan);
  plan.config.runtime.goes_on = patience.goes_on;
  patience = plan.config.runtime.patience();
  const fs::path directory = plan.config.runtime.run_dir;
  FSDP_CHECK(!directory.empty(),
             "--resume auto: needs runtime.run_dir, the folder that the run goes on in");
  check_not_gone(request, directory);
  if (!is_there(directory)) return;
  FSDP_CHECK(is_folder(directory), "runtime.run_dir: {}: expected a folder, got a file",
             directory.string());
  if (!is_run(directory) && !is_beginning_of_run(directory)) {
    fail_missing(fmt::format("--resume auto: {}: no run directory: neither {} nor run_args.json",
                             directory.string(), kConfigName));
  }
  take_run(directory, record, plan);
  patience.goes_on = patience.goes_on || record.last;
  check_owner(plan.config, plan);
  const fs::path folder = checkpoint_folder(plan.config, directory);
  wait_for_last(request, folder, record, patience);
  std::vector<std::string> damaged = choose_newest(request, folder, record, plan);
  add_missing(record, folder, plan, damaged);
  if (plan.manifest && damaged.empty() && request.before.durable_step > plan.manifest->step()) {
    plan.warnings.push_back(
        fmt::format("resumed from step {}, though the last checkpoint known was of step {}",
                    plan.manifest->step(), request.before.durable_step));
  }
  if (plan.manifest) return check_steps_back(damaged, plan);
  if (is_finished(record, plan.config)) return note_damaged(damaged, plan);
  const bool had_one = record.last || !damaged.empty();
  FSDP_CHECK(!record.ended || record.interrupted || had_one || request.from_scratch,
             "--resume auto: {}: this run has ended and left no checkpoint to go on from; give "
             "another runtime.run_dir",
             directory.string());
  start_again(request, record, damaged, plan);
}

// The configuration that was stored, with what is given now over it; a file that is given counts
// instead.
config::TrainConfig stored_config(const ResumeRequest& request, const std::string& yaml,
                                  const fs::path& source, const fs::path& started_in,
                                  ResumePlan& plan) {
  if (!request.config_file.empty()) return given_config(request, plan);
  config::TrainConfig config = config::parse_config(yaml, source.string(), request.overrides);
  for (auto& [key, place] : config.places) {  // a manifest has the lines as one text
    if (source.filename() == kManifestName && place.starts_with(source.string())) place = source;
  }
  keep_paths(config, started_in);
  find_texts(config, request.config_file);  // a pattern that is typed now
  return config;
}

void plan_checkpoint(const ResumeRequest& request, const fs::path& checkpoint, RunRecord& record,
                     ResumePlan& plan) {
  const std::string problem = problem_of(checkpoint, plan.manifest);
  FSDP_CHECK(problem.empty(), "{}", problem);
  plan.checkpoint = checkpoint;
  plan.config = stored_config(request, plan.manifest->config, checkpoint / kManifestName,
                              plan.manifest->working_directory, plan);
  const fs::path above = fs::absolute(checkpoint).lexically_normal().parent_path().parent_path();
  const fs::path own = is_run(above) ? above : fs::path(plan.manifest->run_directory);
  const std::string stored =
      config::parse_config(plan.manifest->config, "stored", {}).runtime.run_dir;
  const std::string& wanted = plan.config.runtime.run_dir;
  if (!wanted.empty() && wanted != stored && fs::absolute(wanted).lexically_normal() != own) {
    FSDP_CHECK(!is_there(wanted), "runtime.run_dir: {} is there already; give another one", wanted);
    return;  // a new run that begins where this one was
  }
  take_run(own, record, plan);
  const std::map<int64_t, fs::path> all = checkpoints_in(checkpoint.parent_path());
  FSDP_CHECK(all.empty() || all.rbegin()->first <= plan.manifest->step(),
             "--resume {}: its run has later checkpoints, such as {}: remove these, or give "
             "runtime.run_dir for a new run that begins there",
             checkpoint.string(), all.empty() ? "" : all.rbegin()->second.string());
}

// A run that goes on takes its checkpoint's configuration. Whoever has edited the file beside it is
// told; so is whoever has changed a key in a run that left no later checkpoint.
void note_edits(const config::TrainConfig& edited, ResumePlan& plan) {
  const config::TrainConfig stored =
      config::parse_config(plan.manifest->config, (plan.checkpoint / kManifestName).string(), {});
  for (const ConfigChange& change : config_changes(stored, edited)) {
    plan.notes.push_back(fmt::format("{}: {}: {} is not used: the checkpoint has {}", kConfigName,
                                     change.key, change.after, change.before));
  }
}

void plan_run(const ResumeRequest& request, const fs::path& directory, IoPatience& patience,
              RunRecord& record, ResumePlan& plan) {
  take_run(directory, record, plan);
  config::TrainConfig stored = config::read_config(directory / kConfigName, {});
  keep_paths(stored, record.working_directory);
  stored.runtime.goes_on = patience.goes_on || record.last;
  patience = stored.runtime.patience();
  check_owner(stored, plan);
  const fs::path checkpoints = checkpoint_folder(stored, directory);
  wait_for_last(request, checkpoints, record, patience);
  std::vector<std::string> damaged = choose_newest(request, checkpoints, record, plan);
  add_missing(record, checkpoints, plan, damaged);
  if (plan.manifest) {
    if (request.config_file.empty()) {
      note_edits(config::read_config(directory / kConfigName, {}), plan);
    }
    plan.config = stored_config(request, plan.manifest->config, plan.checkpoint / kManifestName,
                                plan.manifest->working_directory, plan);
    return check_steps_back(damaged, plan);
  }
  // As it is wanted now: with more steps a run that had ended is not finished.
  plan.config = stored_config(request, read_file(directory / kConfigName), directory / kConfigName,
                              record.working_directory, plan);
  if (is_finished(record, plan.config)) return note_damaged(damaged, plan);
  FSDP_CHECK(damaged.empty(), "{}: no checkpoint can be read: {}", checkpoints.string(),
             fmt::join(damaged, "; "));
  fail("--resume {}: no complete checkpoint in it (checkpoint.every){}", directory.string(),
       is_finished(record, stored) ? ", and the run has ended" : "");
}

// What only a folder can tell: that it is a run's, and not the model in it.
void check_model_path(const std::string& path) {
  if (path.empty()) return;
  if (!has_weights(path)) refuse_foreign(path);
  if (is_there(fs::path(path) / "config.json") || !is_run(path)) return;
  fail("model.path: {} is a run directory; the model in it is {}", path,
       (fs::path(path) / "model").string());
}

// Of a run that begins: before its text is tokenised.
void check_named_model(const config::TrainConfig& config) {
  const std::string &path = config.model.path, &preset = config.model.preset;
  if (!preset.empty() && !models::is_preset(preset)) model_config(config, 1);  // which says why
  FSDP_CHECK(path.empty() || is_there(path), "{}",
             config::with_place(config, fmt::format("model.path: {}: no such folder{}", path,
                                                    models::instead_of(path))));
}

}  // namespace

void keep_paths(config::TrainConfig& c, const fs::path& started_in) {
  std::error_code unknown;
  if (started_in.empty() || fs::equivalent(started_in, fs::current_path(), unknown)) return;
  if (!fs::is_directory(started_in, unknown)) return;  // moved, with all that was in it
  put_paths_in(c, started_in);
}

void put_paths_in(config::TrainConfig& c, const fs::path& folder) {
  // `key`: the member whose place counts.
  const auto keep_of = [&](const auto& key, std::string& path) {
    const auto place = c.places.find(config::key_of(c, key));
    const bool typed = place != c.places.end() && place->second.starts_with("--");
    if (typed || path.empty() || fs::path(path).is_absolute()) return;
    path = (folder / path).lexically_normal().string();
  };
  const auto keep = [&](std::string& path) { keep_of(path, path); };
  for (std::string& file : c.data.train) keep_of(c.data.train, file);
  for (config::SourceSection& source : c.data.sources) {
    for (std::string& file : source.path) keep_of(c.data.sources, file);
  }
  for (std::string& file : c.data.validation) {
    if (!c.data.held_out()) keep_of(c.data.validation, file);
  }
  if (c.data.tokenizer != "bytes") keep(c.data.tokenizer);
  if (!data::is_template_name(c.data.row_template, config::guests_of<data::NamedTemplate>()))
    keep(c.data.row_template);
  if (!data::is_own_chat_template(c.data.chat.chat_template)) keep(c.data.chat.chat_template);
  for (std::string* path : {&c.data.cache_dir, &c.model.path, &c.lora.path, &c.checkpoint.folder}) {
    keep(*path);
  }
}

void refuse_foreign(const fs::path& folder) {
  std::error_code unreadable;
  for (const auto& item : fs::directory_iterator(folder, unreadable)) {
    for (const auto* foreign : config::guests_of<config::ForeignCheckpoint>()) {
      const std::string way_out = foreign->way_out(item);
      FSDP_CHECK(way_out.empty(),
                 "{}: a checkpoint of {}: this program reads its own checkpoints only; export the "
                 "weights as safetensors ({}) and give that folder, with config.json and the "
                 "tokenizer's files, as model.path",
                 folder.string(), foreign->program, way_out);
    }
  }
}

std::vector<ConfigChange> config_changes(const config::TrainConfig& before,
                                         const config::TrainConfig& after) {
  config::TrainConfig copy_before = before, copy_after = after;  // options refer to members
  for (config::TrainConfig* each : {&copy_before, &copy_after}) {
    each->data.pad = each->data.padded_on();  // runs of before padding_side was read have it
  }
  const auto old_options = config::options(copy_before), options = config::options(copy_after);
  std::vector<ConfigChange> changes;
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string old_value = old_options[i].value.text(), value = options[i].value.text();
    const config::OnResume on_resume = options[i].about.on_resume;
    if (value == old_value || on_resume == config::OnResume::kOwn) continue;
    const bool free = is_free(on_resume, before, after);
    changes.push_back({options[i].key, old_value, value, !free, on_resume});
  }
  return changes;
}

namespace {

// `patience`: gets that of the configuration, once it is known.
ResumePlan plan_once(const ResumeRequest& request, IoPatience& patience) {
  ResumePlan plan;
  if (request.from.empty()) {
    plan.config = given_config(request, plan);
    check_named_model(plan.config);
    check_model_path(plan.config.model.path);
    return plan;
  }
  RunRecord record;
  const fs::path from = fs::path(request.from) / "";  // without a difference at the end
  const fs::path folder = from.parent_path();
  if (request.from == "auto") {
    plan_auto(request, patience, record, plan);
  } else if (is_there(folder / kManifestName)) {
    plan_checkpoint(request, folder, record, plan);
  } else {
    if (!is_there(folder))
      fail_missing(fmt::format("--resume {}: no such folder", folder.string()));
    refuse_foreign(folder);
    FSDP_CHECK(is_there(folder / kConfigName),
               "--resume {}: neither a run directory ({}) nor a checkpoint ({})", folder.string(),
               kConfigName, kManifestName);
    plan_run(request, folder, patience, record, plan);
  }
  if (plan.manifest) {
    config::TrainConfig before =
        config::parse_config(plan.manifest->config, (plan.checkpoint / kManifestName).string(), {});
    keep_paths(before, plan.manifest->working_directory);
    for (std::string& note :
         notes_on_changes(before, plan.config, *plan.manifest, request.with_changes)) {
      plan.notes.push_back(std::move(note));
    }
    plan.config.length_note.clear();  // where the length has changed, one of these says it
    // Of a run that an earlier version started by the hub's name.
    const std::string preset = models::preset_named(plan.config.model.preset);
    if (!preset.empty()) plan.config.model.preset = preset;
  }
  check_model_path(plan.config.model.path);
  if (plan.run_directory.empty()) return plan;
  plan.config.runtime.run_dir = plan.run_directory.string();
  const int64_t steps = plan.config.train.steps;
  plan.finished = is_finished(record, plan.config);
  const bool allowed = plan.config.train.allow_nonfinite_validation;
  if (plan.finished && !allowed) plan.gave_up = record.gave_up;
  const bool in_steps = plan.config.train.epochs == 0;
  FSDP_CHECK(plan.finished || !plan.manifest || !in_steps || plan.manifest->step() <= steps,
             "train.steps: expected at least {}, the steps that {} has, got {}",
             plan.manifest->step(), plan.checkpoint.string(), steps);
  return plan;
}

}  // namespace

ResumePlan plan_resume(const ResumeRequest& request) {
  FSDP_CHECK(!request.from_scratch || request.from == "auto",
             "--restart-from-scratch: only with --resume auto");
  if (request.from.empty()) {
    FSDP_CHECK(!request.with_changes, "--resume-with-changes: only with --resume");
  }
  IoPatience patience = {.goes_on = request.before.count() > 0};
  try {
    return patiently(patience, [&] { return plan_once(request, patience); });
  } catch (const std::exception& error) {
    if (!patience.goes_on || cause_of(error) != Cause::kName) throw;
    throw MachineError(error.what());
  }
}

std::vector<std::string> compare_data(const std::map<std::string, std::string>& before,
                                      const std::map<std::string, std::string>& now,
                                      bool with_changes) {
  std::vector<std::string> differences;
  for (const auto& [what, hash] : now) {
    const auto found = before.find(what);
    if (found == before.end() || found->second == hash) continue;
    differences.push_back(fmt::format("{}: {} -> {}", what, found->second, hash));
  }
  FSDP_CHECK(with_changes || differences.empty(),
             "--resume: the run would read something else than before; --resume-with-changes "
             "continues anyway: {}",
             fmt::join(differences, ", "));
  return differences;
}

}  // namespace fsdp::tools
