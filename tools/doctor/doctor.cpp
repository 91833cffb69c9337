// The rank that speaks for a host, and the order in which ranks look. Contract:
// tools/doctor/doctor.h.
#include "tools/doctor/doctor.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "comm/exchange.h"
#include "core/io/file.h"
#include "tools/doctor/shared_folder.h"
#include "tools/doctor/within.h"
#include "tools/launch/launch.h"

namespace fsdp::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int kExchanges = 10;  // by which clocks are compared

// The hosts in the order of their first ranks, which speak for them.
struct Hosts {
  std::vector<std::string> names;
  std::vector<size_t> speakers;  // ranks
  size_t own = 0;                // of this rank: its place in the lists
  bool speaks = false;           // this rank
  JobShape job;
};

Hosts find_hosts(comm::Communicator& world) {
  Hosts hosts;
  const std::vector<std::string> of_ranks = world.exchange(host_name());
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (std::ranges::find(hosts.names, of_ranks[rank]) != hosts.names.end()) continue;
    hosts.names.push_back(of_ranks[rank]);
    hosts.speakers.push_back(rank);
  }
  const std::string& mine = of_ranks[static_cast<size_t>(world.rank())];
  hosts.own = static_cast<size_t>(std::ranges::find(hosts.names, mine) - hosts.names.begin());
  hosts.speaks = hosts.speakers[hosts.own] == static_cast<size_t>(world.rank());
  hosts.job = {.ranks = world.size(),
               .on_host = static_cast<int>(std::ranges::count(of_ranks, mine))};
  return hosts;
}

// A look returns the checks that it found, or one check that says why it found nothing.
struct Look {
  std::string name;
  std::string fix;  // where it does not end, or ends in an error
  std::chrono::milliseconds limit;
  std::function<std::string(int code)> fix_of = nullptr;  // an errno; 0: it does not end

  Check failed(const std::string& why, int code = 0) const {
    return {.name = name, .value = why, .state = State::kFail, .fix = fix_of ? fix_of(code) : fix};
  }
  std::vector<Check> operator()(std::function<std::vector<Check>()> work) const {
    try {
      if (auto checks = within(limit, std::move(work))) return *checks;
      return {
          failed(fmt::format("no answer within {:g} s", static_cast<double>(limit.count()) / 1e3))};
    } catch (const SystemError& error) {
      return {failed(error.what(), error.code())};
    } catch (const fs::filesystem_error& error) {
      return {failed(message_of(error), error.code().value())};
    } catch (const std::exception& error) {
      return {failed(message_of(error), -1)};
    }
  }
};

// Where Open MPI and others put small files, and where the token files go by default.
std::vector<Check> look_at_spaces(std::chrono::milliseconds limit) {
  const char* const set = std::getenv("TMPDIR");
  const std::string temporary = set && *set ? set : "/tmp";
  const struct {
    std::string name, folder, elsewhere;
  } places[] = {{"temporary", temporary, "export TMPDIR=FOLDER"},
                {"token cache", ".cache/tokens", "--set data.cache_dir=FOLDER"}};
  std::vector<Check> checks;
  for (const auto& [name, folder, elsewhere] : places) {
    const Look look = {.name = name, .fix = {}, .limit = limit, .fix_of = [folder](int code) {
                         return folder_fix(code, folder);
                       }};
    const auto found = look([name, folder, elsewhere] {
      const FreeSpace space = read_free_space(folder);
      Check check = space_check(name, space, elsewhere);
      check.value = fmt::format("{}: {}", space.folder.string(), check.value);
      return std::vector{check};
    });
    checks.insert(checks.end(), found.begin(), found.end());
  }
  return checks;
}

std::vector<Check> look_at_host(JobShape job, const DoctorOptions& options) {
  const std::chrono::milliseconds limit = options.limit;
  std::vector<Check> of_gpus = Look{"GPUs", "nvidia-smi -r   # or start the host again",
                                    limit}([] { return gpu_checks(read_gpu_facts()); });
  job.gpus = static_cast<int>(of_gpus[0].number.value_or(0));
  const std::vector<Check> of_mpi =
      Look{"MPI", "mpirun --version; srun --mpi=list   # must answer",
           limit}([launched = options.launched] { return mpi_checks(read_mpi_facts(), launched); });
  std::vector<Check> checks = Look{"host", "ls /proc /sys   # must be mounted",
                                   limit}([job] { return host_checks(read_host_facts(), job); });
  const std::vector<Check> health =
      Look{"GPU health", "nvidia-smi   # must answer; else reboot",
           limit}([] { return std::vector{health_check(ask_nvidia_smi())}; });
  for (const auto& more : {of_gpus, health, of_mpi, look_at_spaces(limit)}) {
    checks.insert(checks.end(), more.begin(), more.end());
  }
  return checks;
}

// All write, then all look, then all remove: between these steps all ranks wait for each other.
std::vector<Check> look_at_folder(comm::Communicator& world, const Hosts& hosts,
                                  const DoctorOptions& options) {
  const std::string job = comm::from_first_rank(
      world, fmt::format("{}-{}", static_cast<long>(std::time(nullptr)), ::getpid()));
  const Look look = {.name = "folder", .fix = {}, .limit = options.limit, .fix_of = [&](int code) {
                       return folder_fix(code, options.folder);
                     }};
  std::vector<Check> checks;
  std::shared_ptr<SharedFolder> shared;
  Mount mount;
  if (hosts.speaks) {
    shared = std::make_shared<SharedFolder>(options.folder, job, hosts.own, hosts.names);
    checks = look([shared] { return shared->write(), std::vector<Check>(); });
    mount = shared->mount();
  }
  const std::vector<std::string> first =
      comm::exchange_texts(world, {mount.place, mount.type, mount.source})[0];
  if (shared && checks.empty()) {
    checks = look([shared, first] {
      shared->look();
      return shared->checks({first[0], first[1], first[2]});
    });
  }
  world.barrier();
  if (shared) look([shared] { return shared->remove(), std::vector<Check>(); });
  return checks;
}

}  // namespace

std::vector<HostReport> examine(comm::Communicator& world, const DoctorOptions& options) {
  const Hosts hosts = find_hosts(world);
  std::vector<Check> mine;
  const auto add = [&](const std::vector<Check>& more) {
    mine.insert(mine.end(), more.begin(), more.end());
  };
  if (hosts.speaks) {
    mine.push_back({.name = "program", .value = options.program});
    const auto count = static_cast<double>(hosts.names.size());
    mine.push_back({.name = "hosts", .value = fmt::format("{:g}", count), .number = count});
    mine.push_back(
        {.name = "ranks", .value = fmt::format("{}", world.size()), .number = world.size()});
    add(look_at_host(hosts.job, options));
  }
  add(look_at_folder(world, hosts, options));
  const std::vector<std::vector<Stamps>> stamps = stamp_exchanges(world, kExchanges);
  if (hosts.speaks && hosts.own > 0) {
    mine.push_back(clock_check(clock_offset(stamps[static_cast<size_t>(world.rank())], stamps[0]),
                               hosts.names[0]));
  }
  const auto said = comm::exchange_texts(world, to_texts(mine));
  std::vector<HostReport> reports;
  for (size_t i = 0; i < hosts.names.size(); ++i) {
    reports.push_back({.host = hosts.names[i], .checks = from_texts(said[hosts.speakers[i]])});
  }
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  compare_hosts(reports, comm::from_first_rank(world, program.string()));
  demand(options.expected, reports);
  return reports;
}

}  // namespace fsdp::tools::doctor
