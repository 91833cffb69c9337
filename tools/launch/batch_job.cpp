// Contract: tools/launch/batch_job.h.
#include "tools/launch/batch_job.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/mpi_transport.h"
#include "core/error.h"
#include "core/text/counted.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

std::string text_of(const char* variable) { return variable ? variable : ""; }

// "2026-11-26T07:50:08", in this machine's time zone; 0: none, such as "N/A" and "UNLIMITED".
int64_t unix_time_of(const std::string& text) {
  std::tm local = {};
  if (!::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &local)) return 0;
  local.tm_isdst = -1;
  return std::max<int64_t>(0, ::mktime(&local));
}

std::string answer_to(const std::string& command) {
  return output_within(std::chrono::seconds(10), {"sh", "-c", command}).text;
}

const char* environment(const char* name) { return std::getenv(name); }

}  // namespace

std::optional<BatchJob> batch_job(const GetVariable& getenv) {
  const char* const id = getenv("SLURM_JOB_ID");
  if (!id) return {};
  return BatchJob{.id = id,
                  .array = text_of(getenv("SLURM_ARRAY_JOB_ID")),
                  .task = text_of(getenv("SLURM_ARRAY_TASK_ID")),
                  .nodes = text_of(getenv("SLURM_JOB_NODELIST")),
                  .restarts = std::atoi(text_of(getenv("SLURM_RESTART_COUNT")).c_str())};
}

std::optional<BatchJob> batch_job() { return batch_job(environment); }

int64_t end_of_batch_job(const GetVariable& getenv,
                         const std::function<std::string(const std::string& command)>& ask) {
  const int64_t end = std::atoll(text_of(getenv("SLURM_JOB_END_TIME")).c_str());
  if (end > 0) return end;
  const std::string id = text_of(getenv("SLURM_JOB_ID"));
  if (id.empty() || id.find_first_not_of("0123456789") != std::string::npos) return 0;
  return unix_time_of(ask("env SLURM_TIME_FORMAT=standard squeue --noheader --jobs=" + id +
                          " --format=%e 2>/dev/null"));
}

int64_t end_of_batch_job() { return end_of_batch_job(environment, answer_to); }

namespace {

constexpr size_t kMostHosts = 1'000'000;
constexpr size_t kMostNamed = 8;

class HostList {
 public:
  explicit HostList(std::string_view list) : list_(list) {}

  std::vector<std::string> expand() const {
    std::vector<std::string> out;
    for (const std::string_view name : split(list_)) {
      for (std::string& host : expand_name(name)) add(std::move(host), out);
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& expected) const {
    fail("host list \"{}\": expected {}", list_, expected);
  }
  void add(std::string text, std::vector<std::string>& out) const {
    if (out.size() == kMostHosts) refuse("at most a million hosts");
    out.push_back(std::move(text));
  }

  // At commas that no bracket encloses.
  std::vector<std::string_view> split(std::string_view text) const {
    std::vector<std::string_view> out;
    size_t begin = 0;
    bool inside = false;
    for (size_t i = 0; i <= text.size(); ++i) {
      if (i < text.size() && (text[i] == '[' || text[i] == ']')) {
        if (inside == (text[i] == '[')) refuse("a ] behind each [");
        inside = !inside;
      }
      if (i < text.size() && (inside || text[i] != ',')) continue;
      if (i == begin) refuse("a name before and behind each comma");
      out.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
    if (inside) refuse("a ] behind each [");
    return out;
  }

  std::vector<std::string> expand_name(std::string_view name) const {
    const size_t open = name.find('[');
    if (open == std::string_view::npos) return {std::string(name)};
    const size_t close = name.find(']', open);
    const std::string_view head = name.substr(0, open), rest = name.substr(close + 1);
    const std::vector<std::string> tails =
        rest.empty() ? std::vector<std::string>{""} : expand_name(rest);
    std::vector<std::string> out;
    for (const std::string_view range : split(name.substr(open + 1, close - open - 1))) {
      for (const std::string& number : numbers(range)) {
        for (const std::string& tail : tails) add(fmt::format("{}{}{}", head, number, tail), out);
      }
    }
    return out;
  }

  int64_t number(std::string_view text) const {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) {
      refuse(fmt::format("numbers in brackets, got \"{}\"", text));
    }
    return value;
  }

  // "01-03": as wide as the first.
  std::vector<std::string> numbers(std::string_view range) const {
    const size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const int64_t from = number(first);
    const int64_t to = dash == std::string_view::npos ? from : number(range.substr(dash + 1));
    if (to < from) refuse(fmt::format("a range that rises, got \"{}\"", range));
    std::vector<std::string> out;
    for (int64_t i = from; i <= to; ++i) add(fmt::format("{:0{}}", i, first.size()), out);
    return out;
  }

  std::string_view list_;
};

std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list) { return HostList(list).expand(); }

std::string idle_hosts_note(const std::vector<std::string>& hosts,
                            const std::function<const char*(const char*)>& getenv) {
  for (const char* variable : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const char* list = getenv(variable);
    if (list == nullptr) continue;
    std::set<std::string> busy;
    for (const std::string& host : hosts) busy.insert(short_name(host));
    std::vector<std::string> job;
    try {
      job = expand_host_list(list);
    } catch (const Error& error) {
      return fmt::format("{}: {}", variable, error.what());
    }
    const int64_t all = std::ssize(job);
    std::erase_if(job, [&](const std::string& host) { return busy.contains(short_name(host)); });
    if (job.empty()) return "";
    const size_t more = job.size() - std::min(job.size(), kMostNamed);
    job.resize(job.size() - more);
    return fmt::format("{} has {}, no rank runs on {}{}", variable, counted(all, "host"),
                       fmt::join(job, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
  }
  return "";
}

std::string srun_plugin(const std::string& listed, bool without_pmix) {
  std::vector<std::string> plugins;
  std::string word;
  for (const char c : listed + "\n") {
    const bool inside = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    if (inside) {
      word += c;
    } else if (!word.empty()) {
      plugins.push_back(std::exchange(word, ""));
    }
  }
  const auto has = [&](std::string_view name) {
    return std::find(plugins.begin(), plugins.end(), name) != plugins.end();
  };
  if (has("pmix")) return "pmix";
  for (const std::string& each : plugins) {
    if (each.starts_with("pmix_v")) return each;
  }
  return without_pmix && has("pmi2") ? "pmi2" : "";
}

std::optional<std::string> asked_srun_plugin() {
  const ShellOutput listed = output_within(std::chrono::seconds(20), {"srun", "--mpi=list"});
  if (listed.status != 0) return {};  // also where it cannot find its cluster
  return srun_plugin(listed.text, comm::MpiRuntime::reaches_slurm());
}

}  // namespace fsdp::tools
