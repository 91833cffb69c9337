// Signals are blocked and waited for, so that no handler runs beside the rest.
#include "tools/jobs/parent.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/file.h"
#include "core/io/patience.h"
#include "tools/checkpoint/run_record.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/status.h"
#include "tools/report/run_costs.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr int kAsking[] = {SIGUSR1, SIGINT, SIGTERM, SIGALRM, SIGHUP};
constexpr seconds kUntilKill(10);
constexpr seconds kRepeat(1);
constexpr std::chrono::milliseconds kTogether(500);  // as tools/launch/interrupt.cpp
// Read by tools/launch/launch.cpp: how often the job was started again, and the Unix time at which
// the start before has ended.
constexpr const char* kRestarts = "FSDP_RESTARTS";
constexpr const char* kEndedBefore = "FSDP_ENDED_BEFORE";

sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kAsking) sigaddset(&set, signal);
  return set;
}

// The next of these signals, or 0 when none came in this time.
int next_signal(const sigset_t& set, seconds limit) {
  const timespec time = {limit.count(), 0};
  for (;;) {
    const int signal = ::sigtimedwait(&set, nullptr, &time);
    if (signal >= 0) return signal;
    if (errno == EAGAIN) return 0;
  }
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// "name=value" each.
std::vector<std::string> environment_with(std::vector<std::string> variables) {
  const auto name_of = [](std::string_view variable) {
    return variable.substr(0, variable.find('='));
  };
  const auto given = variables;
  for (char** variable = environ; *variable; ++variable) {
    const bool replaced = std::any_of(given.begin(), given.end(), [&](const std::string& each) {
      return name_of(each) == name_of(*variable);
    });
    if (!replaced) variables.emplace_back(*variable);
  }
  return variables;
}

// A file that the output of a child process is appended to; without a name nothing is replaced.
class ChildOutput {
 public:
  explicit ChildOutput(const fs::path& file) {
    if (file.empty()) return;
    descriptor_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    FSDP_CHECK(descriptor_ >= 0, "{}: cannot be written: {}", file.string(),
               std::generic_category().message(errno));
  }
  ~ChildOutput() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;
  void replace(int descriptor) const {  // in the child
    if (descriptor_ >= 0) ::dup2(descriptor_, descriptor);
  }

 private:
  int descriptor_ = -1;
};

// In a group of its own: Ctrl-C of a terminal reaches the parent alone. Where the parent is killed,
// the job is asked to stop. Between fork and exec nothing may ask for memory: another thread may
// have held its lock. `variables`: of the environment, beside those that are there.
pid_t start(const ParentOptions& options, const std::vector<std::string>& words,
            const std::vector<std::string>& variables, const sigset_t& mask) {
  const std::vector<std::string> all = environment_with(variables);
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(all);
  const std::string message = fmt::format("fsdp: launch: {}: cannot be started\n", words[0]);
  const ChildOutput output(options.output), errors(options.errors);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  FSDP_CHECK(child >= 0, "launch: a process cannot be started: {}",
             std::generic_category().message(errno));
  if (child > 0) return child;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (::getppid() != parent) ::_exit(1);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  output.replace(STDOUT_FILENO);
  errors.replace(STDERR_FILENO);
  ::sigprocmask(SIG_UNBLOCK, &mask, nullptr);
  ::execvpe(arguments[0], arguments.data(), environment.data());
  const ssize_t ignored = ::write(STDERR_FILENO, message.data(), message.size());
  static_cast<void>(ignored);
  ::_exit(status::kMistake);
}

// The status of the process if it has ended. `by_signal`: whether a signal has ended it.
std::optional<int> ended(pid_t child, bool& by_signal) {
  int state = 0;
  if (::waitpid(child, &state, WNOHANG) != child) return {};
  by_signal = WIFSIGNALED(state);
  if (WIFEXITED(state)) return WEXITSTATUS(state);
  if (WIFSIGNALED(state)) return 128 + WTERMSIG(state);
  return {};
}

class Parent {
 public:
  explicit Parent(const ParentOptions& options)
      : options_(options), restarts_(options.restarts), signals_(awaited_signals()) {
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
  }
  ~Parent() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;

  int asked() const { return asked_; }
  int run() {
    const bool goes_on = !options_.run_directory.empty();
    const std::vector<std::string> words =
        command_of(options_.job, this_host(options_.job), goes_on);
    durable_step();  // whether there is one
    for (;;) {
      const int status = is_gone() ? status::kFailed : run_once(words);
      ended_before_ = fmt::format("{:.3f}", unix_time());
      const Restarts::Decision next = restarts_.after(status, asked_, durable_step());
      if (!next.why.empty()) options_.say(next.why);
      if (was_killed_) tell_of_leftovers();
      if (!next.again) return ends_at_once_ ? status_after(asked_) : next.status;
      const int signal = next_asking(next.pause);
      // The job before has crashed: its last steps are not on the disk.
      if (signal != 0) return signal == SIGUSR1 ? status::kNotDurable : status_after(signal);
    }
  }

 private:
  // A signal that comes between two starts.
  int next_asking(seconds pause) {
    for (;;) {
      const int signal = next_signal(signals_, pause);
      if (signal != SIGCHLD) return signal;  // of a process that an earlier start has left
    }
  }

  // A run that has a checkpoint is not begun anew because its file system is not there.
  bool is_gone() {
    std::error_code unreadable;
    if (durable_step_ == 0 || fs::exists(options_.run_directory, unreadable)) return false;
    options_.say(options_.run_directory.string() + " is not there: the job is not started");
    return true;
  }

  // SIGUSR1 is never the second signal: a batch system sends it, and some time later SIGTERM. Nor
  // is what comes together: GNU timeout sends a signal to the process and one to its group.
  bool is_second(int signal) {
    if (signal == SIGUSR1) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!stopping_) stopping_ = now;
    return now - *stopping_ > kTogether;
  }

  int run_once(const std::vector<std::string>& words) {
    const pid_t child = start(options_, words,
                              {fmt::format("{}={}", kRestarts, restarts_.count()),
                               fmt::format("{}={}", kEndedBefore, ended_before_)},
                              signals_);
    // Until the launcher and its ranks listen to SIGUSR1, it is lost. They take it any number of
    // times.
    bool repeats = false;
    for (;;) {
      const int signal = next_signal(signals_, ends_at_once_ ? kUntilKill : kRepeat);
      // SIGCHLD is lost where another thread takes it.
      if (signal == SIGCHLD || signal == 0) {
        if (const std::optional<int> status = ended(child, was_killed_)) return *status;
      }
      if (signal == SIGCHLD) continue;
      if (signal == 0) {
        if (ends_at_once_) ::kill(-child, SIGKILL);
        if (repeats && !ends_at_once_) ::kill(child, SIGUSR1);
      } else if (!is_second(signal)) {
        if (asked_ == 0) asked_ = signal;
        // mpirun and srun kill their ranks after any other signal.
        repeats = options_.job.launcher != Launcher::kLocal;
        ::kill(child, repeats ? SIGUSR1 : signal);
      } else {
        options_.say("a second signal: the job is ended at once");
        ::kill(-child, SIGTERM);
        ends_at_once_ = true;
      }
    }
  }

  // As far as it can be read: a disk that is not there for the moment takes no progress back.
  int64_t durable_step() {
    if (options_.run_directory.empty()) return 0;
    try {
      const RunRecord record =
          patiently(IoPatience(), [&] { return read_run_record(options_.run_directory); });
      if (record.last) durable_step_ = std::max(durable_step_, record.last->step);
    } catch (const Error&) {
    }
    return durable_step_;
  }

  void tell_of_leftovers() const {
    if (options_.job.launcher != Launcher::kMpirun) return;
    const std::string note = leftovers_note("/dev/shm", "/tmp", ::geteuid());
    if (!note.empty()) options_.say("note: " + note);
  }

  const ParentOptions& options_;
  Restarts restarts_;
  sigset_t signals_, before_;
  std::string ended_before_ = "0";  // Unix time; 0: this is the first start
  int64_t durable_step_ = 0;        // of the last checkpoint; 0: there was none
  bool ends_at_once_ = false;       // a second signal came
  bool was_killed_ = false;         // the launcher of the last start
  int asked_ = 0;                   // the first signal that told the parent to stop
  std::optional<std::chrono::steady_clock::time_point> stopping_;  // the first but SIGUSR1
};

}  // namespace

JobResult run_job(const ParentOptions& options) {
  Parent parent(options);
  const int status = parent.run();
  return {.status = status, .asked = parent.asked()};
}

int keep_running(const ParentOptions& options) { return run_job(options).status; }

std::string leftovers_note(const fs::path& shared_memory, const fs::path& temporary,
                           unsigned user) {
  std::vector<std::string> patterns;
  size_t files = 0;
  const auto look = [&](const fs::path& folder, std::string_view prefix) {
    const size_t before = files;
    for (const std::string& name : names_in(folder)) {
      struct stat status {};
      if (!name.starts_with(prefix)) continue;
      if (::stat((folder / name).c_str(), &status) == 0 && status.st_uid == user) ++files;
    }
    if (files > before) patterns.push_back((folder / prefix).string() + "*");
  };
  look(shared_memory, "vader_segment.");
  look(temporary, "ompi.");
  if (files == 0) return "";
  return fmt::format(
      "mpirun was killed and may have left files; where no other job of yours runs on this host: "
      "rm "
      "-r {}",
      fmt::join(patterns, " "));
}

}  // namespace fsdp::tools
