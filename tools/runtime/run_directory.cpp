// Making the folder of a run and saying what was run.
#include "tools/runtime/run_directory.h"

#include <chrono>
#include <ctime>

#include <unistd.h>

#include "core/io/json.h"
#include "tools/runtime/launch.h"

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

std::filesystem::path create_numbered(const std::filesystem::path& given) {
  const std::filesystem::path wanted = given.has_filename() ? given : given.parent_path();
  std::error_code error;
  const std::filesystem::path parent = wanted.parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  FSDP_CHECK(!error, "{}: cannot be made: {}", parent.string(), error.message());
  std::filesystem::path path = wanted;
  for (int number = 2; !std::filesystem::create_directory(path, error); ++number) {
    FSDP_CHECK(!error, "{}: cannot be made: {}", path.string(), error.message());
    path = fmt::format("{}-{}", wanted.string(), number);
  }
  return path;
}

std::filesystem::path make_run_directory(comm::Communicator& world,
                                         const std::filesystem::path& wanted,
                                         const std::string& name) {
  const std::string stamped = fmt::format("runs/{}-{}", name, local_time("%Y%m%d-%H%M%S"));
  std::string path;
  agree(world, [&] {
    if (world.rank() != 0) return;
    path = create_numbered(wanted.empty() ? std::filesystem::path(stamped) : wanted).string();
  });
  return world.exchange(path)[0];
}

void write_run_arguments(comm::Communicator& world, const std::filesystem::path& directory,
                         const RunArguments& arguments) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::vector<std::string> hosts = world.exchange(host);
  agree(world, [&] {
    if (world.rank() != 0) return;
    write_json_file(directory / "run_args.json",
                    {{"command", arguments.command},
                     {"config", arguments.config},
                     {"set", arguments.overrides},
                     {"world_size", world.size()},
                     {"local_ranks", arguments.local_ranks},
                     {"threads_per_rank", arguments.threads},
                     {"hosts", hosts},
                     {"working_directory", std::filesystem::current_path().string()},
                     {"started", local_time("%Y-%m-%dT%H:%M:%S%z")}});
  });
}

}  // namespace fsdp::tools
