// Contract: tools/jobs/slurm_queue.h.
#include "tools/jobs/slurm_queue.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "core/error.h"

namespace fsdp::tools {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// "12: RUNNING on n[0-1]", "12: PENDING (BeginTime), restart 1"
std::string line_of(const QueuedJob& job) {
  std::string line = fmt::format("job {}: {}", job.id, job.state);
  if (job.state == "PENDING" && job.reason != "None") line += fmt::format(" ({})", job.reason);
  if (!job.nodes.empty() && !job.has_ended()) line += " on " + job.nodes;
  if (job.restarts > 0) line += fmt::format(", restart {}", job.restarts);
  if (job.has_ended()) line += fmt::format(", status {}", job.status);
  const bool failed = job.has_ended() && job.state != "COMPLETED";
  constexpr int kNoLog = 128 + 53;  // Slurm's own
  if (failed && job.status == kNoLog) {
    line += fmt::format("; Slurm may not have been able to open {}: is its folder there?",
                        job.log.string());
  } else if (failed && !job.log.empty()) {
    line += "; " + job.log.string();
  }
  return line;
}

// Its value may have blanks: it goes to the next name, or to the end.
std::string path_in(const std::string& line, const std::string& name) {
  const size_t at = line.find(name);
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size();
  size_t end = std::min(line.find('=', begin), line.size());
  if (end < line.size()) end = line.rfind(' ', end);
  const size_t last = line.find_last_not_of(' ', end - 1);
  return line.substr(begin, last + 1 - begin);
}

// What was appended to a file since the last call.
class Appended {
 public:
  std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    file.seekg(read_);
    std::ostringstream text;
    if (file) text << file.rdbuf();
    read_ += static_cast<std::streamoff>(text.str().size());
    return text.str();
  }

 private:
  std::streamoff read_ = 0;
};

// What was seen of the jobs. Slurm forgets a job some minutes after its end.
class Seen {
 public:
  // Calls `say` with what is not known yet.
  void add(const std::vector<QueuedJob>& jobs, const std::function<void(const std::string&)>& say) {
    all_ended_ = !jobs.empty();
    for (const QueuedJob& job : jobs) {
      const std::string line = line_of(job);
      if (std::exchange(told_[job.id], line) != line) say(line);
      if (job.has_ended()) {
        statuses_[job.id] = job.state == "COMPLETED" ? 0 : std::max(job.status, 1);
      } else {
        all_ended_ = false;
      }
    }
  }
  bool all_ended() const { return all_ended_; }
  int worst() const {
    int worst = 0;
    for (const auto& [job, status] : statuses_) worst = std::max(worst, status);
    return worst;
  }

 private:
  std::map<std::string, std::string> told_;  // by job
  std::map<std::string, int> statuses_;      // of those that have ended
  bool all_ended_ = false;
};

}  // namespace

std::string submit(const std::filesystem::path& script, const Ask& ask) {
  const ShellOutput printed = ask({"sbatch", "--parsable", script.string()});
  FSDP_CHECK(printed.status != 127,
             "launch slurm: this machine has no sbatch: submit {} on one that has it",
             script.string());
  // Notes of the cluster may stand before the number.
  std::string id;
  std::istringstream lines(printed.text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && (id.empty() || std::isdigit(static_cast<unsigned char>(line[0])) != 0))
      id = line;
  }
  FSDP_CHECK(
      printed.status == 0 && !id.empty() && std::isdigit(static_cast<unsigned char>(id[0])) != 0,
      "sbatch {}: {}", script.string(), id.empty() ? fmt::format("status {}", printed.status) : id);
  return id.substr(0, id.find(';'));  // a cluster's name may follow
}

bool QueuedJob::has_ended() const {
  for (const char* ended : {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
                            "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}) {
    if (state == ended) return true;
  }
  return false;
}

std::vector<QueuedJob> parse_jobs(const std::string& text) {
  std::vector<QueuedJob> jobs;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::map<std::string, std::string> values;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const size_t equal = word.find('=');
      if (equal != std::string::npos) values.emplace(word.substr(0, equal), word.substr(equal + 1));
    }
    if (values.count("JobId") == 0) continue;
    QueuedJob job = {.id = values["JobId"],
                     .state = values["JobState"],
                     .reason = values["Reason"],
                     .nodes = values["NodeList"],
                     .restarts = std::atoi(values["Restarts"].c_str()),
                     .log = path_in(line, " StdOut=")};
    if (values.count("ArrayTaskId") > 0)
      job.id = values["ArrayJobId"] + "_" + values["ArrayTaskId"];
    if (job.nodes == "(null)") job.nodes.clear();
    const std::string& code = values["ExitCode"];  // "75:0", "0:9"
    const size_t colon = code.find(':');
    const int signal = colon == std::string::npos ? 0 : std::atoi(code.c_str() + colon + 1);
    job.status = signal > 0 ? 128 + signal : std::atoi(code.c_str());
    jobs.push_back(job);
  }
  return jobs;
}

int follow(const std::string& id, const Following& following) {
  Seen seen;
  std::string trouble;
  Appended log;
  for (;;) {
    const ShellOutput printed = following.ask({"scontrol", "show", "job", "-o", id});
    if (printed.status == 0) {
      trouble.clear();
      const std::vector<QueuedJob> jobs = parse_jobs(printed.text);
      seen.add(jobs, following.say);
      const bool of_array = !jobs.empty() && jobs.front().id.find('_') != std::string::npos;
      if (jobs.size() == 1 && !of_array) following.show(log.read(jobs.front().log));
      if (seen.all_ended()) return seen.worst();
    } else if (printed.text.find("Invalid job id") != std::string::npos) {
      following.say(fmt::format("job {}: Slurm does not know of it any more", id));
      return std::max(seen.worst(), 1);
    } else if (trouble != first_line(printed.text)) {
      trouble = first_line(printed.text);
      following.say(trouble + "; asking again");
    }
    std::this_thread::sleep_for(following.pause);
  }
}

}  // namespace fsdp::tools
