// Contract: tools/run/run_parts.h.
#include "tools/run/run_parts.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/checkpoint/unit_hashes.h"
#include "tools/config/guests.h"
#include "tools/launch/end_note.h"
#include "tools/report/metrics.h"
#include "tools/report/metrics_line.h"
#include "tools/report/result_files.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

void forget_directory(const fs::path& directory) {
  std::error_code ignored;
  for (const fs::path& folder : {directory / "checkpoints", directory}) {
    try {
      remove_unfinished(folder);
    } catch (const SystemError&) {  // the next start removes it
    }
  }
  // What makes the folder a run's goes last: without it only a beginning is left.
  for (const char* made : {"metrics.jsonl", "skipped_rows.jsonl", "progress.json", "checkpoints",
                           "config.yaml", "run_args.json", "run.lock", ""}) {
    fs::remove(directory / made, ignored);  // folders: only empty ones
  }
}

namespace {

// The log of a run that begins anew is none of this one's, but the only trace of what was done.
void set_aside(const fs::path& log) {
  const auto name = [&](int number) {
    return fs::path(log).replace_extension(fmt::format("{}.jsonl", number));
  };
  int number = 1;
  while (is_there(name(number))) ++number;
  fs::rename(log, name(number));
}

std::vector<std::string> take_log(const fs::path& directory, const fs::path& log,
                                  const TrainTotals& before, const LoggedSteps& logged) {
  const std::string there = is_there(log) ? read_file(log) : "";
  if (before.steps == 0) {
    if (!there.empty()) set_aside(log);
    return {};
  }
  if (there.empty()) {
    return {fmt::format("{}: missing: the log has no lines of the steps up to {}", log.string(),
                        before.steps)};
  }
  const KeptLines kept = metrics_until(there, before.steps, before.validated_at, logged);
  // Mostly lines at the end go: a log of weeks is not written anew for them.
  const fs::path own = directory / "metrics.jsonl";
  std::error_code other;
  if (fs::equivalent(log, own, other) && there.starts_with(kept.text))
    fs::resize_file(own, kept.text.size());
  else
    write_file_atomically(own, kept.text);
  if (kept.foreign == 0) return {};
  return {fmt::format("{}: {} not written by this program: left out", log.string(),
                      counted(kept.foreign, "line"))};
}

}  // namespace

std::vector<std::string> go_on_in_directory(const fs::path& directory, const fs::path& run_before,
                                            const TrainTotals& before, const LoggedSteps& logged) {
  std::vector<std::string> notes =
      take_log(directory, run_before / "metrics.jsonl", before, logged);
  keep_unit_hashes(directory, run_before, before.steps);
  fs::remove(directory / "metrics.json");
  fs::remove(directory / kEndNote);
  for (const auto* files : config::guests_of<ResultFiles>()) {
    for (const std::string_view name : files->names) fs::remove(directory / name);
  }
  for (const char* model : {"model", "adapter"}) {
    if (!fs::exists(directory / model)) continue;
    notes.push_back(fmt::format(
        "{} was saved at an earlier end of this run and stays until this one saves its own",
        (directory / model).string()));
  }
  return notes;
}

void check_source_stays(const std::string& key, const std::string& source,
                        const fs::path& replaced) {
  std::error_code missing;
  FSDP_CHECK(source.empty() || !fs::equivalent(source, replaced, missing),
             "{}: {}: this run would replace it by its own model at its end; copy the folder, or "
             "give another runtime.run_dir",
             key, source);
}

void write_skipped_rows(const fs::path& directory, const std::vector<data::SkippedRow>& rows) {
  const fs::path file = directory / "skipped_rows.jsonl";
  if (!rows.empty()) return write_file_atomically(file, data::to_jsonl(rows));
  std::error_code ignored;
  fs::remove(file, ignored);  // of an earlier part of the run, with other texts
}

bool fills_a_batch(const config::TrainConfig& config, int64_t batch) {
  if (config.data.synthetic()) return config.data.synthetic_rows.value_or(batch) >= batch;
  if (config.data.subset.n || config.data.bad_rows == data::BadRows::kSkip) return false;
  if (config.data.packing() != data::Pack::kStream) return false;  // of rows, as many as they are
  constexpr uintmax_t kLongestToken = 64;
  uintmax_t bytes = 0;
  for (const std::string& file : config.data.training_files()) {
    std::error_code unreadable;
    const uintmax_t size = fs::file_size(file, unreadable);
    if (!unreadable) bytes += size;
  }
  return bytes / kLongestToken >=
         static_cast<uintmax_t>(batch) * static_cast<uintmax_t>(config.data.sequence_length);
}

void check_disk(const std::string& folder, size_t bytes_of_rank, int ranks) {
  if (bytes_of_rank == 0) return;
  if (!is_folder(folder)) {
    fail_missing(fmt::format("fsdp.offload_folder: {}: expected an existing folder", folder));
  }
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  const uintmax_t needed = uintmax_t{bytes_of_rank} * static_cast<uintmax_t>(ranks);
  FSDP_CHECK(error || space.available >= needed,
             "fsdp.offload_folder: {}: {} are free, the state of {} needs {}", folder,
             byte_size_text(space.available), counted(ranks, "rank"), byte_size_text(needed));
}

bool drops_other_elements(const ContinuedRun& run) {
  const models::ModelConfig& m = run.model;
  const bool drops = m.embedding_dropout > 0 || m.attention_dropout > 0 || m.residual_dropout > 0 ||
                     m.mlp_dropout > 0 || run.adapter_dropout > 0;
  const config::StepShape &now = run.shape, &before = run.before;
  const bool same = now.micro_steps == before.micro_steps && now.ranks == before.ranks &&
                    now.rows_per_pass == before.rows_per_pass;
  const auto by_micro_step = [](const config::StepShape& shape) {
    return shape.rows_per_pass == 0 && shape.micro_steps > 1;
  };
  return drops && !same && (by_micro_step(now) || by_micro_step(before));
}

void check_same_run(const ContinuedRun& run) {
  const int ranks = run.before.ranks;
  // train.batch may be left to the number of ranks, which a run that goes on does not follow.
  FSDP_CHECK(run.shape.batch == run.before.batch,
             "--resume: train.batch: {}; the run had: {}. Where train.batch is not given it grows "
             "with the ranks: --set train.batch={} --set train.micro_steps=auto keeps it; "
             "--resume-with-changes continues anyway",
             run.shape.text(), run.before.text(), run.before.batch);
  FSDP_CHECK(models::config_json(run.model, "") == run.model_before,
             "--resume: the model differs from the checkpoint's; "
             "--resume-with-changes continues anyway");
  FSDP_CHECK(!run.order_follows_ranks || run.shape.ranks == ranks,
             "--resume: with data.shuffle_rule: torch the number of ranks decides which sequences "
             "an epoch has: expected {} as before, got {}; --resume-with-changes continues anyway",
             counted(ranks, "rank"), run.shape.ranks);
  FSDP_CHECK(!drops_other_elements(run),
             "--resume: dropout depends on the micro-step in which a sequence is computed, and "
             "other ranks or train.micro_steps move sequences to others; expected {} ranks and "
             "train.micro_steps as before (with train.rows_per_pass, any); "
             "--resume-with-changes continues anyway",
             ranks);
}

std::string format_losses(const TrainTotals& totals, int64_t averaged_steps,
                          std::optional<double> bigram) {
  const int64_t steps = std::min(averaged_steps, totals.steps);
  const std::string of =
      steps == 1 ? "of the last step" : fmt::format("mean of the last {} steps", steps);
  std::string out = fmt::format("loss (nats per token)\n  {:<26}{:>8.4f}   {}\n", "training",
                                totals.train_loss(), of);
  if (totals.validation_loss) {
    out += fmt::format("  {:<26}{:>8.4f}\n", "validation", *totals.validation_loss);
  }
  if (bigram) {
    out += fmt::format("  {:<26}{:>8.4f}   validation text by the training text's token pairs\n",
                       "bigram entropy", *bigram);
  }
  return out;
}

std::string failed_validation(const config::TrainConfig& config, const TrainTotals& totals) {
  const std::string nonfinite = nonfinite_validation(totals);
  if (nonfinite.empty() || config.train.allow_nonfinite_validation) return "";
  return nonfinite + " (train.allow_nonfinite_validation)";
}

std::string format_batch_times(const Prefetch::Times& times, int64_t steps) {
  if (steps < 2) return "";
  const double hidden = std::max(1 - times.waited_s / std::max(times.made_s, 1e-12), 0.0);
  return fmt::format("making batches: {:.3f} ms a step, {:.1f} % of it hidden behind the steps\n",
                     1e3 * times.made_s / static_cast<double>(steps - 1), 100 * hidden);
}

size_t states_by_formula(comm::Strategy strategy, int shards, int64_t parameters) {
  const auto whole = static_cast<double>(parameters);
  const double share = whole / shards;
  switch (strategy) {
    case comm::Strategy::kNoShard:
      return static_cast<size_t>(16 * whole);
    case comm::Strategy::kShardOptimizer:
      return static_cast<size_t>(4 * whole + 12 * share);
    case comm::Strategy::kShardGradOp:
    case comm::Strategy::kHybridShardZero2:
      return static_cast<size_t>(2 * whole + 14 * share);
    default:
      return static_cast<size_t>(16 * share);
  }
}

std::string spread_groups(const std::vector<std::string>& hosts, int shards) {
  const auto size = static_cast<size_t>(shards), ranks = hosts.size();
  if (size >= ranks) return "";
  std::vector<size_t> spread;  // their first ranks
  std::vector<std::string> names, counts;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t first = rank - rank % size;
    const bool listed = !spread.empty() && spread.back() == first;
    if (hosts[rank] != hosts[first] && !listed) spread.push_back(first);
    if (std::find(names.begin(), names.end(), hosts[rank]) == names.end()) {
      names.push_back(hosts[rank]);
      counts.push_back(fmt::format("{} on {}", std::count(hosts.begin(), hosts.end(), hosts[rank]),
                                   hosts[rank]));
    }
  }
  if (spread.empty()) return "";
  constexpr size_t kMostHosts = 8;
  if (counts.size() > kMostHosts) {
    counts.resize(kMostHosts);
    counts.push_back("...");
  }
  return fmt::format(
      "fsdp.shard_size {}: {} of {} shard groups are on several hosts, the first has ranks {} to "
      "{}: "
      "what it gathers crosses the network; ranks: {}",
      size, spread.size(), ranks / size, spread[0], spread[0] + size - 1, fmt::join(counts, ", "));
}

}  // namespace fsdp::tools
