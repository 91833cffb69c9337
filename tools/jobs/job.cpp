// Contract: tools/jobs/job.h.
#include "tools/jobs/job.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/held_stream.h"
#include "tools/config/config.h"
#include "tools/launch/gpu_nodes.h"
#include "tools/launch/srun_plugin.h"

extern char** environ;

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// What a rank on another host would not get from mpirun by itself.
bool is_exported(std::string_view name) {
  for (const std::string_view prefix :
       {"NCCL_", "UCX_", "OMP_", "GOMP_", "KMP_", "CUDA_", "FSDP_", "MALLOC_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "LD_LIBRARY_PATH" || name == "PATH";
}

// Set by the parent for each start (parent.cpp), read by rank 0, which may be on another host.
constexpr const char* kParentVariables[] = {"FSDP_RESTARTS", "FSDP_ENDED_BEFORE",
                                            "FSDP_STATUS_BEFORE", "FSDP_CAUSE_BEFORE",
                                            "FSDP_DURABLE_STEP"};

int most_of_host(const Job& job, const JobHost& host) {
  if (job.hosts.empty()) return host.slurm_ranks > 0 ? host.slurm_ranks : job.all_ranks();
  int most = 0;
  for (const HostSlots& each : job.hosts) most = std::max(most, each.ranks);
  return most;
}

// How many GPUs in a row a NUMA node has, where each node has as many: ranks, which take GPUs in
// their order, are then dealt to the nodes in the same way. 0: the GPUs lie in another order.
int gpus_of_node(const std::vector<int>& nodes) {
  if (nodes.empty() || nodes.front() != 0) return 0;
  const auto run =
      std::find_if(nodes.begin(), nodes.end(), [&](int node) { return node != nodes.front(); }) -
      nodes.begin();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] != static_cast<int>(i) / static_cast<int>(run)) return 0;
  }
  return static_cast<int>(run);
}

// A rank stays near its GPU. Without GPUs each rank gets its share of the cores where there is one
// for it; ranks that share cores are not bound, because an idle one would keep its core from the
// others.
Words binding(const Job& job, const JobHost& host) {
  const int ranks = most_of_host(job, host);
  const int of_node = gpus_of_node(host.gpu_nodes);
  if (of_node > 0 && ranks <= static_cast<int>(host.gpu_nodes.size()) && host.cores >= ranks) {
    return {"--map-by", fmt::format("ppr:{}:numa", std::min(of_node, ranks)), "--bind-to", "numa"};
  }
  const int share = host.gpu_nodes.empty() ? host.cores / ranks : 0;
  if (share == 0) return {"--oversubscribe", "--bind-to", "none"};
  return {"--map-by", "slot:PE=" + std::to_string(share), "--bind-to", "core"};
}

bool says(const Words& words, std::string_view option) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word == option || word.starts_with(std::string(option) + "=");
  });
}

Words mpirun_words(const Job& job, const JobHost& host, bool goes_on) {
  Words words = {"mpirun", "-n", std::to_string(job.all_ranks())};
  const auto add = [&](const Words& more) { words.insert(words.end(), more.begin(), more.end()); };
  if (!job.hosts.empty()) {
    Words slots;
    for (const HostSlots& each : job.hosts)
      slots.push_back(fmt::format("{}:{}", each.host, each.ranks));
    add({"--host", fmt::format("{}", fmt::join(slots, ","))});
  }
  add(binding(job, host));
  if (host.root) add({"--allow-run-as-root"});
  for (const std::string& name : host.variables) {
    if (is_exported(name)) add({"-x", name});
  }
  if (goes_on && !job.hosts.empty()) {
    for (const char* name : kParentVariables) add({"-x", name});
  }
  return words;
}

// A rank that ends before the others does not end them at once: they end with the same status, a
// moment later. Where a rank is lost, the others notice it themselves.
Words srun_words(const Job& job, const JobHost& host) {
  FSDP_CHECK(!host.srun_plugin.empty(),
             "launch srun: srun has no way to connect the ranks of this program's MPI (srun "
             "--mpi=list shows what it has; expected pmix): fsdp launch mpirun");
  Words words = {"srun",
                 "-n",
                 std::to_string(job.all_ranks()),
                 "--mpi=" + host.srun_plugin,
                 "--kill-on-bad-exit=0",
                 "--wait=60"};
  if (host.slurm_cores > 0) {
    words.push_back(fmt::format("--cpus-per-task={}", host.slurm_cores));
    words.emplace_back("--cpu-bind=cores");
  }
  return words;
}

int number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text ? std::max(0, std::atoi(text)) : 0;
}

}  // namespace

int Job::all_ranks() const {
  if (ranks > 0 || hosts.empty()) return std::max(1, ranks);
  int all = 0;
  for (const HostSlots& each : hosts) all += each.ranks;
  return all;
}

JobHost this_host(const Job& job) {
  JobHost host = {.root = ::geteuid() == 0};
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) host.cores = std::max(1, CPU_COUNT(&set));
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    host.variables.emplace_back(text.substr(0, text.find('=')));
  }
  for (const auto& [address, node] : numa_nodes_of_gpus()) host.gpu_nodes.push_back(node);
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const auto count = std::count(visible, visible + std::strlen(visible), ',') + 1;
    // Which of them is not known.
    if (count != std::ssize(host.gpu_nodes)) host.gpu_nodes.assign(host.gpu_nodes.size(), -1);
  }
  host.slurm_ranks = number_of("SLURM_TASKS_PER_NODE");  // "4(x2)"
  host.slurm_cores = number_of("SLURM_CPUS_PER_TASK");
  if (job.launcher == Launcher::kSrun) {
    const auto plugin = asked_srun_plugin();
    FSDP_CHECK(plugin, "launch srun: there is no srun on this machine that answers");
    host.srun_plugin = *plugin;
  }
  return host;
}

Words command_of(const Job& job, const JobHost& host, bool goes_on) {
  FSDP_CHECK(!job.arguments.empty(), "launch: expected a command behind --, such as: -- train ...");
  if (!job.hosts.empty()) {
    const int slots = Job{.hosts = job.hosts}.all_ranks();
    FSDP_CHECK(job.all_ranks() <= slots, "launch: {} ranks, but --hosts has {}", job.ranks, slots);
  }
  Words words;
  if (job.launcher == Launcher::kMpirun) words = mpirun_words(job, host, goes_on);
  if (job.launcher == Launcher::kSrun) words = srun_words(job, host);
  words.push_back(job.program);
  words.insert(words.end(), job.arguments.begin(), job.arguments.end());
  const auto add = [&](const Words& more) { words.insert(words.end(), more.begin(), more.end()); };
  if (job.launcher == Launcher::kLocal && job.ranks > 1) {
    add({"--local-ranks", std::to_string(job.ranks)});
  }
  if (goes_on && !says(job.arguments, "--resume")) add({"--resume", "auto"});
  return words;
}

Words values_of(const Words& words, const std::string& option) {
  Words values;
  bool inside = false;
  for (const std::string& word : words) {
    if (word.starts_with(option + "=")) values.push_back(word.substr(option.size() + 1));
    if (inside && !word.starts_with("--")) values.push_back(word);
    if (word.starts_with("--")) inside = word == option;
  }
  return values;
}

JobRun run_of(const Job& job) {
  FSDP_CHECK(!job.arguments.empty() && job.arguments.front() == "train",
             "launch: --restart: only train can go on where it was, got {}",
             job.arguments.empty() ? "no command" : job.arguments.front());
  const Words resume = values_of(job.arguments, "--resume");
  FSDP_CHECK(resume.empty() || resume.back() == "auto",
             "launch: --restart: expected --resume auto, got --resume {}: each start would go on "
             "there",
             resume.empty() ? "" : resume.back());
  const Words files = values_of(job.arguments, "--config");
  const std::string file = files.empty() ? "" : held_stream(files.back());
  const Words sets = values_of(job.arguments, "--set");
  const config::TrainConfig config =
      config::read_config(file, std::vector<config::Override>(sets.begin(), sets.end()));
  FSDP_CHECK(!config.runtime.run_dir.empty(),
             "launch: --restart: needs runtime.run_dir, the folder that the run goes on in");
  return {.directory = config.runtime.run_dir,
          .timeout = std::chrono::seconds(config.runtime.launch.timeout_s)};
}

}  // namespace fsdp::tools
