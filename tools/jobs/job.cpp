// Contract: tools/jobs/job.h. The forms of files: man mpirun of Open MPI ("hostfile"), MPICH's and
// Intel MPI's machine files, DeepSpeed's hostfile, PBS_NODEFILE, LSB_DJOB_HOSTFILE, PE_HOSTFILE.
#include "tools/jobs/job.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include <fmt/ranges.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/held_stream.h"
#include "tools/config/config.h"
#include "tools/launch/batch_job.h"
#include "tools/launch/host_load.h"
#include "tools/launch/launcher_environment.h"
#include "tools/launch/thread_choice.h"

extern char** environ;

namespace fsdp::tools {
namespace {

constexpr int kMostRanks = 65536;

// 0: no number of ranks.
int ranks_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  return number && value <= kMostRanks ? std::max(value, 0) : 0;
}

// "a:4", "b[1-3]:4", "c". Empty where it is none of these.
std::vector<HostSlots> hosts_of(const std::string& part) {
  const size_t colon = part.rfind(':');
  const int ranks = colon == part.npos ? 1 : ranks_in(std::string_view(part).substr(colon + 1));
  const std::string names = part.substr(0, colon);
  const bool odd = names.find_first_of(" =,/\"'<>(){};:|&\xef") < names.find('[');
  if (names.empty() || ranks == 0 || odd || names.find_first_of(".-") == 0) return {};
  std::vector<HostSlots> hosts;
  for (const std::string& name : expand_host_list(names)) hosts.push_back({name, ranks});
  return hosts;
}

// The words behind the host: "slots=4 max_slots=8", "4", "4 queue@a UNDEFINED".
bool set_ranks(const std::vector<std::string>& words, std::vector<HostSlots>& hosts) {
  constexpr size_t kOfGridEngine = 4;
  const auto set = [&](int ranks) {
    for (HostSlots& host : hosts) host.ranks = ranks;
    return ranks > 0;
  };
  if (words.size() == 2 || words.size() == kOfGridEngine) {
    if (const int ranks = ranks_in(words[1])) return set(ranks);
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const int ranks = equals == std::string::npos ? 0 : ranks_in(words[i].substr(equals + 1));
    if (ranks == 0) return false;
    if (name == "slots") {
      set(ranks);
    } else if (name != "max_slots" && name != "max-slots") {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<HostSlots> parse_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  int open = 0;
  for (size_t begin = 0, i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++open;
    if (i < text.size() && text[i] == ']') --open;
    if (i < text.size() && (text[i] != ',' || open > 0)) continue;
    const std::string part = text.substr(begin, i - begin);
    const std::vector<HostSlots> more = hosts_of(part);
    FSDP_CHECK(!more.empty(),
               "--hosts: expected host:ranks, such as a:4,b:4, or a file of hosts, got \"{}\"",
               part);
    for (const HostSlots& host : more) {
      FSDP_CHECK(std::ranges::count(hosts, host.host, &HostSlots::host) == 0,
                 "--hosts: {} is listed twice", host.host);
      hosts.push_back(host);
    }
    begin = i + 1;
  }
  return hosts;
}

std::vector<HostSlots> parse_host_file(const std::string& text, const std::string& place) {
  std::vector<HostSlots> hosts;
  std::istringstream lines(text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream stream(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);  // \r is white space
    if (words.empty()) continue;
    std::vector<HostSlots> more = hosts_of(words[0]);
    const bool known = !more.empty() && set_ranks(words, more);
    FSDP_CHECK(known, "{}:{}: expected a host, \"a\", \"a:4\" or \"a slots=4\", got \"{}\"", place,
               number, fmt::to_string(fmt::join(words, " ")));
    for (const HostSlots& host : more) {
      const auto there = std::ranges::find(hosts, host.host, &HostSlots::host);
      there == hosts.end() ? hosts.push_back(host) : void(there->ranks += host.ranks);
    }
  }
  FSDP_CHECK(!hosts.empty(), "{}: expected a host in each line, the file has none", place);
  return hosts;
}

std::vector<HostSlots> read_hosts(const std::string& given) {
  const bool marked = given.starts_with("@");
  const std::string name = marked ? given.substr(1) : given;
  const bool is_file = name.ends_with(".txt") || name.ends_with(".hosts") || is_there(name);
  if (!marked && !is_file) return parse_hosts(given);
  FSDP_CHECK(!is_folder(name), "--hosts: expected a file of hosts, got the folder {}", name);
  return parse_host_file(read_file(name), name);
}

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
    // Read by rank 0, which may be on another host.
    for (const std::string& variable : variables_of({})) {
      add({"-x", variable.substr(0, variable.find('='))});
    }
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
  JobHost host = {.cores = static_cast<int>(own_cores().size()), .root = ::geteuid() == 0};
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
    FSDP_CHECK(plugin, "launch srun: no srun on this machine answers");
    host.srun_plugin = *plugin;
  }
  return host;
}

Words command_of(const Job& job, const JobHost& host, bool goes_on) {
  FSDP_CHECK(!job.arguments.empty(), "launch: expected a command after --, such as: -- train ...");
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
