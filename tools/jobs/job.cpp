// Contract: tools/jobs/job.h.
#include "tools/jobs/job.h"

#include <algorithm>
#include <string_view>

#include <sched.h>
#include <unistd.h>

#include "core/error.h"
#include "tools/config/config.h"

extern char** environ;

namespace fsdp::tools {
namespace {

// What a rank on another host would not get from mpirun by itself.
bool is_exported(std::string_view name) {
  for (const std::string_view prefix : {"NCCL_", "UCX_", "OMP_", "CUDA_", "FSDP_", "MALLOC_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "LD_LIBRARY_PATH" || name == "PATH";
}

// Each rank gets its share of the cores where there is one for it; ranks that share cores are not
// bound, because an idle one would keep its core from the others.
std::vector<std::string> binding(const Job& job, const JobHost& host) {
  const int share = host.cores / job.ranks;
  if (share == 0) return {"--oversubscribe", "--bind-to", "none"};
  return {"--map-by", "slot:PE=" + std::to_string(share), "--bind-to", "core"};
}

bool says(const std::vector<std::string>& words, std::string_view option) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word == option || word.starts_with(std::string(option) + "=");
  });
}

// The values of an option: "--set a b" has two, "--set=a" one.
std::vector<std::string> values_of(const std::vector<std::string>& words,
                                   const std::string& option) {
  std::vector<std::string> values;
  bool inside = false;
  for (const std::string& word : words) {
    if (word.starts_with(option + "=")) values.push_back(word.substr(option.size() + 1));
    if (inside && !word.starts_with("--")) values.push_back(word);
    if (word.starts_with("--")) inside = word == option;
  }
  return values;
}

}  // namespace

JobHost this_host() {
  JobHost host = {.root = ::geteuid() == 0, .variables = {}};
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) host.cores = std::max(1, CPU_COUNT(&set));
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    host.variables.emplace_back(text.substr(0, text.find('=')));
  }
  return host;
}

std::vector<std::string> command_of(const Job& job, const JobHost& host, bool goes_on) {
  FSDP_CHECK(!job.arguments.empty(), "launch: expected a command behind --, such as: -- train ...");
  std::vector<std::string> words;
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (job.launcher == Launcher::kMpirun) {
    add({"mpirun", "-n", std::to_string(job.ranks)});
    add(binding(job, host));
    if (host.root) add({"--allow-run-as-root"});
    for (const std::string& name : host.variables) {
      if (is_exported(name)) add({"-x", name});
    }
  }
  add({job.program});
  add(job.arguments);
  if (job.launcher == Launcher::kLocal && job.ranks > 1) {
    add({"--local-ranks", std::to_string(job.ranks)});
  }
  if (goes_on && !says(job.arguments, "--resume")) add({"--resume", "auto"});
  return words;
}

std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%";
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

std::filesystem::path directory_of(const Job& job) {
  FSDP_CHECK(!job.arguments.empty() && job.arguments.front() == "train",
             "launch: --restart: only train can go on where it was, got {}",
             job.arguments.empty() ? "no command" : job.arguments.front());
  const std::vector<std::string> resume = values_of(job.arguments, "--resume");
  FSDP_CHECK(resume.empty() || resume.back() == "auto",
             "launch: --restart: expected --resume auto, got --resume {}: each start would go on "
             "there",
             resume.empty() ? "" : resume.back());
  const std::vector<std::string> files = values_of(job.arguments, "--config");
  const std::vector<std::string> sets = values_of(job.arguments, "--set");
  const config::TrainConfig config = config::read_config(
      files.empty() ? "" : files.back(), std::vector<config::Override>(sets.begin(), sets.end()));
  FSDP_CHECK(!config.runtime.run_dir.empty(),
             "launch: --restart: needs runtime.run_dir, the folder that the run goes on in");
  return config.runtime.run_dir;
}

}  // namespace fsdp::tools
