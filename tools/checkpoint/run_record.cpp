// Contract: tools/checkpoint/run_record.h.
#include "tools/checkpoint/run_record.h"

#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/launch/status.h"
#include "tools/report/metrics.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

fs::path last_file(const fs::path& run_directory) {
  return run_directory / "checkpoints" / "last.json";
}

// read(the file's JSON); a file that is empty, cut or of another shape is a note.
template <typename Read>
void read_if_there(const fs::path& file, std::vector<std::string>& notes, Read&& read) {
  if (!is_there(file)) return;
  try {
    read(read_json_file(file));
  } catch (const SystemError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    const bool named = what.starts_with(file.string());
    notes.push_back(fmt::format("{}; what it says is not known",
                                named ? what : fmt::format("{}: {}", file.string(), what)));
  }
}

CheckpointOfRun checkpoint_from(const Json& json) {
  return {.step = json.at("step"), .path = json.value("path", ""), .run = json.value("run", "")};
}

}  // namespace

RunRecord read_run_record(const fs::path& run_directory) {
  RunRecord record;
  read_if_there(run_directory / "run_args.json", record.notes, [&](const Json& json) {
    record.id = json.value("run", "");
    record.working_directory = json.value("working_directory", "");
    const Json* const from = json.find("resumed_from");
    if (from && from->is_object()) record.origin = checkpoint_from(*from);
  });
  if (is_there(last_file(run_directory))) record.last.emplace();
  read_if_there(last_file(run_directory), record.notes,
                [&](const Json& json) { record.last = checkpoint_from(json); });
  // Outside of the folder whose loss it tells.
  read_if_there(run_directory / "progress.json", record.notes, [&](const Json& json) {
    const int64_t step = json.value("durable_step", int64_t{0});
    if (step > 0 && !record.last) record.last = {.step = step, .path = "", .run = record.id};
  });
  read_if_there(run_directory / "metrics.json", record.notes, [&](const Json& json) {
    record.interrupted = json.value("interrupted", true);
    const Json* const end = json.find("ended");
    if (end && end->is_object() && end->value("status", 0) == status::kGaveUp)
      record.gave_up = end->value("reason", "");
    record.steps = json.value("steps", int64_t{0});
    record.epochs = json.value("epochs", 0.0);
    if (const Json* const left = json.find("left_out_batches"))
      record.left_out = ranges_from(*left);
    record.ended = true;
  });
  return record;
}

void note_last_checkpoint(const fs::path& run_directory, const CheckpointOfRun& checkpoint) {
  make_folders(last_file(run_directory).parent_path());
  write_json_file(last_file(run_directory), to_json(checkpoint));
}

}  // namespace fsdp::tools
