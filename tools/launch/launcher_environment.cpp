// The foreign variables: torch.distributed.run, accelerate's utils/launch.py, DeepSpeed's
// launcher/launch.py, submitit's local/local.py and helpers.py.
#include "tools/launch/launcher_environment.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <fmt/ranges.h>

#include "core/error.h"
#include "tools/launch/batch_job.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

constexpr int kMostHosts = 8;  // in a line; beyond, a file has them

int number(const ReadVariable& getenv, const char* name, int otherwise) {
  const char* const text = getenv(name);
  return text ? std::atoi(text) : otherwise;
}

const char* name_of_launcher(const ReadVariable& getenv) {
  if (getenv("SUBMITIT_EXECUTOR") || getenv("SUBMITIT_LOCAL_NTASKS")) return "submitit";
  return "torchrun";  // or what does as it does: only its own variables are needed
}

// By name where they are known; "HOST2" stands for the second one.
std::vector<std::string> hosts_of(const ReadVariable& getenv, int count) {
  std::vector<std::string> hosts;
  if (const char* list = getenv("SLURM_JOB_NODELIST")) {
    try {
      hosts = expand_host_list(list);
    } catch (const Error&) {  // said where it matters: idle_hosts_note()
    }
  }
  if (static_cast<int>(hosts.size()) == count) return hosts;
  hosts.clear();
  const char* const first = getenv("MASTER_ADDR");
  for (int i = 1; i <= count; ++i) {
    hosts.push_back(i == 1 && first ? first : fmt::format("HOST{}", i));
  }
  return hosts;
}

// Options of mpirun and of srun.
std::pair<std::string, std::string> places(const ReadVariable& getenv, int size) {
  const int of_host = number(getenv, "LOCAL_WORLD_SIZE", number(getenv, "LOCAL_SIZE", size));
  if (of_host < 1 || of_host >= size || size % of_host != 0) return {};
  const int count = size / of_host;
  std::string list = "--hostfile FILE";
  if (count <= kMostHosts) {
    std::vector<std::string> slots;
    for (const std::string& host : hosts_of(getenv, count)) {
      slots.push_back(fmt::format("{}:{}", host, of_host));
    }
    list = fmt::format("--host {}", fmt::join(slots, ","));
  }
  return {" " + list, fmt::format(" -N {} --ntasks-per-node {}", count, of_host)};
}

}  // namespace

StartsBefore starts_before(const ReadVariable& getenv) {
  const auto text = [&](const char* name) {
    const char* const value = getenv(name);
    return std::string(value ? value : "");
  };
  return {.by_parent = std::max(number(getenv, "FSDP_RESTARTS", 0), 0),
          .by_slurm = std::max(number(getenv, "SLURM_RESTART_COUNT", 0), 0),
          .unattended = number(getenv, "FSDP_RESTARTS", -1) >= 0,
          .durable_step = std::atoll(text("FSDP_DURABLE_STEP").c_str()),
          .ended = std::atof(text("FSDP_ENDED_BEFORE").c_str()),
          .status = number(getenv, "FSDP_STATUS_BEFORE", -1),
          .cause = text("FSDP_CAUSE_BEFORE")};
}

StartsBefore starts_before() {
  return starts_before([](const char* name) -> const char* { return std::getenv(name); });
}

std::vector<std::string> variables_of(const StartsBefore& before) {
  return {fmt::format("FSDP_RESTARTS={}", before.by_parent),
          before.ended > 0 ? fmt::format("FSDP_ENDED_BEFORE={:.3f}", before.ended)
                           : "FSDP_ENDED_BEFORE=0",
          fmt::format("FSDP_STATUS_BEFORE={}", before.status), "FSDP_CAUSE_BEFORE=" + before.cause,
          fmt::format("FSDP_DURABLE_STEP={}", before.durable_step)};
}

LauncherEnvironment launcher_environment(const ReadVariable& getenv) {
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (getenv(name)) return number(getenv, name, -1);
    }
    return -1;
  };
  // Not SLURM_NTASKS and SLURM_PROCID alone: a batch script has them too without having been
  // started by srun. Open MPI; MPICH, Intel MPI, Flux and PALS; MVAPICH2; Flux and jsrun without
  // PMI; srun. PALS and ALPS say no size.
  const int size = first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                             "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE", "SLURM_STEP_NUM_TASKS"});
  const int without_slurm =
      first_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK",
                "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK", "PALS_RANKID", "ALPS_APP_PE"});
  const int rank = without_slurm >= 0 ? without_slurm : first_of({"SLURM_PROCID"});
  const bool started = size > 0 || without_slurm >= 0;
  const int foreign = foreign_size(getenv, started, std::max(size, 0));
  const bool connected =
      getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMIX_NAMESPACE");
  return {.started = started,
          .rank = std::max(foreign > 1 ? first_of({"RANK"})
                           : started   ? rank
                                       : 0,
                           0),
          .size = std::max(size, 0),
          .bound = number(getenv, "OMPI_MCA_orte_bound_at_launch", 0) > 0,
          .without_pmix = !connected && getenv("SLURM_STEP_NUM_TASKS"),
          .foreign_size = foreign};
}

int foreign_size(const ReadVariable& getenv, bool started, int launched) {
  const int local = started ? 0 : number(getenv, "SUBMITIT_LOCAL_NTASKS", 0);
  if (number(getenv, "RANK", -1) < 0) return std::max(local, 0);
  const int size = std::max(number(getenv, "WORLD_SIZE", 0), 0);
  if (!started) return std::max(size, local);
  // A script may set these variables for other programs; a launcher's own says that one started us.
  const bool again = getenv("TORCHELASTIC_RUN_ID") || getenv("CROSS_SIZE");
  return again && launched > 0 && launched != size ? size : 0;
}

std::string foreign_refusal(const ReadVariable& getenv, int size,
                            const std::vector<std::string>& command) {
  const std::string program = shell_text(command);
  const auto [mpirun, srun] = places(getenv, size);
  const std::string what = getenv("RANK") ? fmt::format("RANK and WORLD_SIZE={}", size)
                                          : fmt::format("SUBMITIT_LOCAL_NTASKS={}", size);
  return fmt::format(
      "{} {} set, as by {}: this program's ranks find each other over MPI: mpirun -n {}{} {}; "
      "under Slurm: srun -n {}{} --mpi=pmix {}; where the variables are left over: env -u RANK -u "
      "WORLD_SIZE -u SUBMITIT_LOCAL_NTASKS -u TORCHELASTIC_RUN_ID fsdp ...",
      what, getenv("RANK") ? "are" : "is", name_of_launcher(getenv), size, mpirun, program, size,
      srun, program);
}

std::string unconnected_refusal(const ReadVariable& getenv, int size, int connected,
                                const std::vector<std::string>& command) {
  const std::string program = shell_text(command);
  const std::string n = size > 0 ? std::to_string(size) : "N";
  std::string who = "the launcher", line = "with Slurm: srun --mpi=pmix";
  if (getenv("FLUX_TASK_RANK")) {
    who = "flux";
    line = fmt::format("flux run -o pmi=pmix -n {} {}", n, program);
  } else if (getenv("JSM_NAMESPACE_RANK")) {
    who = "jsrun";
    line = fmt::format("mpirun -n {} --hostfile $LSB_DJOB_HOSTFILE {}", n, program);
  } else if (getenv("PALS_RANKID") || getenv("ALPS_APP_PE")) {
    who = getenv("PALS_RANKID") ? "mpiexec of PALS" : "aprun";
    line = fmt::format("mpirun -n {} --hostfile $PBS_NODEFILE {}", n, program);
  } else if (getenv("PMI_RANK") || getenv("MV2_COMM_WORLD_RANK")) {
    who = "an mpiexec of MPICH's kind";
    line = fmt::format("mpirun -n {} {}", n, program);
  }
  return fmt::format(
      "{} started {} processes but MPI connects {}: this program's MPI is another one (fsdp doctor "
      "says which): {}",
      who, size > 0 ? n : "several", connected, line);
}

std::vector<std::string> own_command() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline");
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace fsdp::tools
