// Removing, cutting, replacing; sizes and free space.
#include "tools/run/run_files.h"

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/byte_size.h"
#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/checkpoint/unit_hashes.h"
#include "tools/config/guests.h"
#include "tools/launch/end_note.h"
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
  return {fmt::format("{}: {} line{} of no run of this program: left out", log.string(),
                      kept.foreign, kept.foreign == 1 ? "" : "s")};
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
    notes.push_back(
        fmt::format("{} is that of an earlier end of this run, until this one saves its own",
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
    fail_missing(fmt::format("fsdp.offload_folder: {}: expected a folder that is there", folder));
  }
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  const uintmax_t needed = uintmax_t{bytes_of_rank} * static_cast<uintmax_t>(ranks);
  FSDP_CHECK(error || space.available >= needed,
             "fsdp.offload_folder: {}: {} are free, the state of {} rank{} needs {}", folder,
             byte_size_text(space.available), ranks, ranks == 1 ? "" : "s", byte_size_text(needed));
}

}  // namespace fsdp::tools
