// Making the folder of a run and saying what was run.
#include "tools/report/run_directory.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "comm/exchange.h"
#include "core/io/file.h"
#include "core/io/json.h"
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

}  // namespace

namespace {

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

void check_run_directory(const std::filesystem::path& wanted, int64_t bytes) {
  std::error_code unreadable;
  if (!wanted.empty() && is_there(wanted)) refuse(wanted);
  std::filesystem::path place = std::filesystem::absolute(wanted.empty() ? kFolder : wanted);
  while (!std::filesystem::exists(place, unreadable) && place.has_relative_path()) {
    place = place.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(place, unreadable);
  if (unreadable) return;  // making the folder says why
  constexpr double kMiB = 1 << 20;
  FSDP_CHECK(static_cast<double>(space.available) >= static_cast<double>(bytes),
             "runtime.run_dir: {}: {:.1f} MiB are free, the trained model needs {:.1f} MiB",
             place.string(), static_cast<double>(space.available) / kMiB,
             static_cast<double>(bytes) / kMiB);
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
