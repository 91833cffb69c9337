// Making the folder of a run and saying what was run.
#include "tools/report/run_directory.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "comm/exchange.h"
#include "core/io/file.h"
#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

std::string local_time(const char* format) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  char text[64] = "";
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

constexpr const char* kFolder = "runs";  // of the runs without a name of their own

// Makes `path`, whose parent is there; false when it is there too.
bool create_once(const std::filesystem::path& path) {
  std::error_code error;
  const bool is_new = std::filesystem::create_directory(path, error);
  const bool in_the_way = error == std::errc::file_exists;
  if (error && !in_the_way) {
    throw SystemError(
        fmt::format("runtime.run_dir: {}: cannot be made: {}", path.string(), error.message()),
        error.value());
  }
  return is_new;
}

void create_parent(const std::filesystem::path& path) {
  if (!path.has_parent_path()) return;
  try {
    make_folders(path.parent_path());
  } catch (const Error& error) {
    fail_like(error, fmt::format("runtime.run_dir: {}", error.what()));
  }
}

std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// Of a folder that is there: nothing is started in it unasked.
[[noreturn]] void refuse(const std::filesystem::path& folder) {
  const bool holds_nothing =
      is_folder(folder) && std::ranges::all_of(names_in(folder), is_name_of_volume);
  fail("runtime.run_dir: {} is there already; give another one{}", folder.string(),
       holds_nothing ? ", or --resume auto, which starts in an empty folder" : "");
}

}  // namespace

bool is_name_of_volume(const std::string& name) {
  return name == "lost+found" || name == ".snapshot" || name == ".snapshots" || name == ".zfs" ||
         name.starts_with(".Trash-");
}

std::string missing_room(const std::filesystem::path& folder, uint64_t bytes_of_one, int64_t count,
                         uint64_t beside) {
  std::error_code unreadable;
  std::filesystem::path place = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(place, unreadable) && place.has_relative_path()) {
    place = place.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(place, unreadable);
  const uint64_t needed = bytes_of_one * static_cast<uint64_t>(count) + beside;
  if (unreadable || space.available >= needed) return "";
  if (count == 0) {
    return fmt::format("{}: {} are free; the trained model needs {}", place.string(),
                       byte_size_text(space.available), byte_size_text(needed));
  }
  return fmt::format("{}: {} are free; {} of {} each{} need {}", place.string(),
                     byte_size_text(space.available), counted(count, "checkpoint"),
                     byte_size_text(bytes_of_one), beside > 0 ? " and the trained model" : "",
                     byte_size_text(needed));
}

void check_run_directory(const std::filesystem::path& wanted, int64_t bytes) {
  if (!wanted.empty() && is_there(wanted)) refuse(wanted);
  const std::string missing =
      missing_room(wanted.empty() ? kFolder : wanted, 0, 0, static_cast<uint64_t>(bytes));
  FSDP_CHECK(missing.empty(), "runtime.run_dir: {}", missing);
}

std::filesystem::path create_numbered(const std::filesystem::path& given) {
  const std::filesystem::path wanted = without_slash(given);
  create_parent(wanted);
  std::filesystem::path path = wanted;
  for (int number = 2; !create_once(path); ++number) {
    path = fmt::format("{}-{}", wanted.string(), number);
  }
  return path;
}

std::filesystem::path make_run_directory(comm::Communicator& world,
                                         const std::filesystem::path& wanted,
                                         const std::string& name, const IoPatience& patience) {
  const std::string stamped = fmt::format("{}/{}-{}", kFolder, name, local_time("%Y%m%d-%H%M%S"));
  std::string path;
  agree(world, patience, [&] {
    if (world.rank() != 0) return;
    if (wanted.empty()) {
      path = create_numbered(stamped).string();
      return;
    }
    const std::filesystem::path given = without_slash(wanted);
    create_parent(given);
    if (!create_once(given)) refuse(given);
    path = given.string();
  });
  return comm::from_first_rank(world, path);
}

Json to_json(const std::optional<BatchJob>& job) {
  if (!job) return {};
  Json out = {{"job_id", job->id}, {"nodes", job->nodes}, {"restarts", job->restarts}};
  if (!job->task.empty()) out.update({{"array_job_id", job->array}, {"array_task_id", job->task}});
  return out;
}

Json to_json(const CheckpointOfRun& checkpoint) {
  if (checkpoint.step == 0) return {};
  return {{"step", checkpoint.step}, {"path", checkpoint.path}, {"run", checkpoint.run}};
}

Json to_json(const RunFacts& f) {
  return {{"model", f.model},
          {"dataset", f.dataset},
          {"run_name", f.run_name},
          {"sharding_strategy", f.sharding_strategy},
          {"max_steps", f.max_steps},
          {"seq_len", f.seq_len},
          {"bsz", f.bsz},
          {"grad_accum", f.grad_accum},
          {"lr", f.lr},
          {"seed", f.seed},
          {"subset_size", f.subset_size ? Json(*f.subset_size) : Json()},
          {"fsdp", f.fsdp},
          {"bf16", f.bf16},
          {"use_lora", f.use_lora},
          {"gradient_checkpointing", f.gradient_checkpointing},
          {"cpu", f.cpu},
          {"gpu", f.gpu.empty() ? Json() : Json(f.gpu)},
          {"gpu0", f.gpu.empty() ? Json() : Json(f.gpu)},  // as the scripts of several ranks say it
          {"torch", nullptr}};                             // there is none
}

void write_run_arguments(comm::Communicator& world, const std::filesystem::path& directory,
                         const RunArguments& arguments, const IoPatience& patience) {
  const std::vector<std::string> hosts = world.exchange(host_name());
  agree(world, patience, [&] {
    if (world.rank() != 0) return;
    Json out = {{"command", arguments.command},
                {"config", arguments.config},
                {"set", arguments.overrides},
                {"world_size", world.size()},
                {"local_ranks", arguments.local_ranks},
                {"threads_per_rank", arguments.threads},
                {"run", arguments.run},
                {"restarts", arguments.restarts},
                {"slurm", to_json(arguments.job)},
                {"resumed_from", to_json(arguments.resumed_from)},
                {"effective_batch", arguments.effective_batch},
                {"rows_per_pass", arguments.rows_per_pass},
                {"micro_steps", arguments.micro_steps},
                {"hosts", hosts},
                {"working_directory", std::filesystem::current_path().string()},
                {"started", local_time("%Y-%m-%dT%H:%M:%S%z")}};
    out.update(to_json(arguments.facts));
    write_json_file(directory / "run_args.json", out);
  });
}

}  // namespace fsdp::tools
