// One function for each check. Contract: tools/doctor/checks.h.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {
namespace {

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

// Open MPI maps so much in /dev/shm for a rank (btl_vader_segment_size). This program's own windows
// are no files of /dev/shm: comm/shared_window.h.
constexpr double kSharedByRank = 4 * kMiB;
// NCCL's user guide asks for so much where several GPUs talk to each other (--shm-size=1g).
constexpr double kSharedByNccl = kGiB;
constexpr double kUsualLockedMemory = 8 * kMiB;  // Linux's own default since 5.16
// The program with its libraries and files, sockets for each other rank, and those of NCCL.
constexpr double kFilesOfProgram = 256, kFilesByRank = 2, kFilesOfNccl = 1024;
constexpr double kUsualFiles = 65536;  // what a limit is raised to
constexpr double kThreadsByRank = 32;  // beside those that compute

std::string bytes_or_unlimited(double bytes) {
  return bytes == kNoLimit ? "unlimited" : byte_size_text(static_cast<size_t>(bytes));
}

// A limit of a process is raised by its shell or, beyond the hard limit, by the administrator.
std::string raise_limit(const Limit& limit, double needed, std::string_view flag,
                        std::string_view item, const std::string& value) {
  if (limit.hard >= needed) return fmt::format("ulimit -{} {}", flag, value);
  return fmt::format(
      "echo '* - {} {}' >>/etc/security/limits.d/90-fsdp.conf   # as root; then log in again", item,
      value);
}

Check cpu(const CpuFacts& cpu, const JobShape& job) {
  Check check = {
      .name = "CPU",
      .value = fmt::format("{}, {} of {}", cpu.name, cpu.cores, counted(cpu.of_host, "core")),
      .number = cpu.cores};
  if (job.on_host <= cpu.of_host) return check;
  return check.fault(
      State::kWarn,
      fmt::format("mpirun --map-by ppr:{0}:node ...   # srun --ntasks-per-node={0}", cpu.of_host),
      fmt::format("; {} ranks run here", job.on_host));
}

Check governor(const CpuFacts& cpu) {
  Check check = {.name = "CPU governor", .value = cpu.governor.empty() ? "none" : cpu.governor};
  if (cpu.allowed_khz < cpu.most_khz) {
    check.fault(
        State::kWarn, fmt::format("cpupower frequency-set -u {:.0f}", cpu.most_khz),
        fmt::format(", at most {:.1f} of {:.1f} GHz", cpu.allowed_khz * 1e-6, cpu.most_khz * 1e-6));
  }
  if (!cpu.governor.empty() && cpu.governor != "performance") {
    check.fault(State::kWarn, "cpupower frequency-set -g performance");
  }
  return check;
}

Check numa(const HostFacts& facts) {
  const int nodes = std::max(facts.numa_nodes, 1);
  return {.name = "NUMA", .value = counted(nodes, "node"), .number = nodes};
}

Check memory(const HostFacts& facts) {
  return {.name = "memory",
          .value = fmt::format("{} ({})", byte_size_text(facts.memory.bytes), facts.memory.source),
          .number = static_cast<double>(facts.memory.bytes) / kGiB};
}

Check control_group(const HostFacts& facts, const JobShape& job) {
  std::vector<std::string> limits;
  Check check = {.name = "control group", .value = {}};
  if (facts.quota.cpus > 0) {
    limits.push_back(fmt::format("{:.3g} CPUs ({})", facts.quota.cpus, facts.quota.source));
    if (facts.quota.cpus < job.on_host) {
      limits.back() += fmt::format(" for {}", counted(job.on_host, "rank"));
      check.fault(State::kWarn,
                  fmt::format("docker run --cpus={} ...   # Kubernetes: limits.cpu", job.on_host));
    }
  }
  if (facts.threads_left != kNoLimit) {
    const double needed = job.on_host * kThreadsByRank + facts.cpu.cores;
    limits.push_back(fmt::format("{} more threads", facts.threads_left));
    if (facts.threads_left < needed) {
      limits.back() += fmt::format(", {} for {}", needed, counted(job.on_host, "rank"));
      check.fault(State::kFail, "docker run --pids-limit=-1 ...   # systemd: TasksMax=infinity");
    }
  }
  check.value =
      limits.empty() ? "no limit of CPUs and threads" : fmt::format("{}", fmt::join(limits, "; "));
  return check;
}

Check open_files(const HostFacts& facts, const JobShape& job) {
  const Limit& limit = facts.open_files;
  const double by_ranks = kFilesOfProgram + kFilesByRank * job.ranks;
  const double by_nccl = job.gpus > 0 && job.on_several_hosts() ? kFilesOfNccl : 0;
  const double needed = by_ranks + by_nccl, wanted = std::max(kUsualFiles, needed);
  Check check = {.name = "open files", .value = "unlimited", .number = limit.soft};
  if (limit.soft != kNoLimit) check.value = fmt::format("{}", limit.soft);
  if (limit.soft >= needed) return check;
  return check.fault(limit.soft < by_ranks ? State::kFail : State::kWarn,
                     limit.hard >= needed && limit.hard < wanted
                         ? "ulimit -n $(ulimit -Hn)"
                         : raise_limit(limit, wanted, "n", "nofile", fmt::format("{}", wanted)),
                     fmt::format("; {} for {}{}", needed, counted(job.ranks, "rank"),
                                 by_nccl > 0 ? " with NCCL" : ""));
}

// RDMA, which only several hosts need, locks the memory that it sends from.
Check locked_memory(const HostFacts& facts, const JobShape& job) {
  const Limit& limit = facts.locked_memory;
  Check check = {
      .name = "memlock", .value = bytes_or_unlimited(limit.soft), .number = limit.soft / kMiB};
  const auto rdma = std::ranges::find(facts.rdma_ports, true, &Card::up);
  const std::string raised = raise_limit(limit, kNoLimit, "l", "memlock", "unlimited");
  if (rdma != facts.rdma_ports.end() && limit.soft < static_cast<double>(facts.memory.bytes)) {
    return check.fault(job.on_several_hosts() ? State::kFail : State::kWarn, raised,
                       fmt::format(", {} locks what it sends", rdma->name));
  }
  if (limit.soft >= kUsualLockedMemory) return check;
  return check.fault(
      State::kWarn, raised,
      fmt::format(", less than Linux's own {}", bytes_or_unlimited(kUsualLockedMemory)));
}

// CUDA reserves addresses for the memory of all GPUs and of the host.
Check addresses(const HostFacts& facts, const JobShape& job) {
  Check check = {.name = "addresses", .value = bytes_or_unlimited(facts.addresses.soft)};
  if (facts.addresses.soft == kNoLimit) return check;
  return check.fault(
      job.gpus > 0 ? State::kFail : State::kWarn,
      raise_limit(facts.addresses, kNoLimit, "v", "as", "unlimited"),
      job.gpus > 0 ? "; CUDA reserves more addresses than the host has memory" : " of each rank");
}

Check processes(const HostFacts& facts, const JobShape& job) {
  const double limit = facts.processes.soft;
  const double needed = job.on_host * kThreadsByRank + facts.cpu.cores;
  Check check = {.name = "processes",
                 .value = limit == kNoLimit ? "unlimited" : fmt::format("{} of this user", limit)};
  if (limit >= needed) return check;
  return check.fault(
      State::kFail,
      raise_limit(facts.processes, needed, "u", "nproc", fmt::format("{:.0f}", needed)),
      fmt::format("; {} for {}", needed, counted(job.on_host, "rank")));
}

Check shared_memory(const HostFacts& facts, const JobShape& job) {
  Check check = {.name = "/dev/shm", .value = "none"};
  if (!facts.shared_memory) return check.fault(State::kWarn, "mount -t tmpfs tmpfs /dev/shm");
  const Space& space = *facts.shared_memory;
  check.value =
      fmt::format("{}, {} free", bytes_or_unlimited(space.size), bytes_or_unlimited(space.free));
  check.number = space.free / kMiB;
  const double by_ranks = job.on_host * kSharedByRank;
  const double by_nccl = job.gpus > 1 ? kSharedByNccl : 0;
  if (space.free >= by_ranks + by_nccl) return check;
  const bool fails = space.free < by_ranks;
  const double size = std::exp2(std::ceil(std::log2(std::max(kGiB, 2 * (by_ranks + by_nccl)))));
  return check.fault(
      fails ? State::kFail : State::kWarn,
      fmt::format("mount -o remount,size={0:.0f}M /dev/shm   # docker run --shm-size={0:.0f}m",
                  size / kMiB),
      fails ? fmt::format("; Open MPI maps {} for {}", bytes_or_unlimited(by_ranks),
                          counted(job.on_host, "rank"))
            : fmt::format("; NCCL may want {}", bytes_or_unlimited(by_nccl)));
}

std::string card_text(const Card& card) {
  return card.gbit > 0 ? fmt::format("{} {:.4g} Gbit/s", card.name, card.gbit) : card.name;
}

// Its number: of the card with the most.
Check network(const HostFacts& facts) {
  std::vector<std::string> up, down;
  Check check = {.name = "network", .value = {}, .number = 0};
  for (const Card& card : facts.cards) {
    if (!card.up) {
      down.push_back(card.name);
      continue;
    }
    up.push_back(card_text(card));
    check.number = std::max(*check.number, card.gbit);
  }
  for (const Card& port : facts.rdma_ports) {
    if (port.up) check.number = std::max(*check.number, port.gbit);
  }
  check.value = up.empty() ? "no card is up" : fmt::format("{}", fmt::join(up, ", "));
  if (up.empty() && !down.empty()) {
    check.fault(State::kWarn, fmt::format("ip link set {} up", down.front()));
  }
  return check;
}

Check rdma(const HostFacts& facts, const JobShape& job) {
  std::vector<std::string> ports;
  bool any_up = false;
  const Card* unmanaged = nullptr;
  for (const Card& port : facts.rdma_ports) {
    ports.push_back(port.up ? card_text(port) : fmt::format("{} {}", port.name, port.state));
    any_up = any_up || port.up;
    if (port.state == "INIT") unmanaged = &port;
  }
  Check check = {.name = "RDMA",
                 .value = ports.empty() ? "none" : fmt::format("{}", fmt::join(ports, ", "))};
  if (ports.empty() || (any_up && !unmanaged)) return check;
  return check.fault(job.on_several_hosts() && !any_up ? State::kFail : State::kWarn,
                     unmanaged ? "systemctl start opensm   # on one host of the fabric"
                               : "export NCCL_IB_DISABLE=1 OMPI_MCA_pml=ob1 "
                                 "OMPI_MCA_btl=self,vader,tcp   # without RDMA",
                     unmanaged ? "; no subnet manager answers" : "; no port is active");
}

}  // namespace

std::vector<Check> host_checks(const HostFacts& facts, const JobShape& job) {
  return {cpu(facts.cpu, job),
          governor(facts.cpu),
          numa(facts),
          memory(facts),
          control_group(facts, job),
          open_files(facts, job),
          locked_memory(facts, job),
          addresses(facts, job),
          processes(facts, job),
          shared_memory(facts, job),
          network(facts),
          rdma(facts, job)};
}

}  // namespace fsdp::tools::doctor
