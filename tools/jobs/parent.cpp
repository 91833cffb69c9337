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
#include "tools/jobs/run_watch.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launcher_environment.h"
#include "tools/launch/status.h"
#include "tools/report/run_costs.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kAsking[] = {SIGUSR1, SIGINT, SIGTERM, SIGALRM, SIGHUP};
constexpr seconds kUntilKill(10);
constexpr milliseconds kTogether(500);     // as tools/launch/interrupt.cpp
constexpr milliseconds kLook(50);          // while the job runs
constexpr milliseconds kFirstBeat(100);    // until it is known to have done a step
constexpr milliseconds kLookWell(10'000);  // between two starts

sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kAsking) sigaddset(&set, signal);
  return set;
}

// The next of these signals, or 0 when none came in this time.
int next_signal(const sigset_t& set, milliseconds limit) {
  const timespec time = {limit.count() / 1000, limit.count() % 1000 * 1'000'000};
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
      : options_(options),
        restarts_(options.restarts),
        watch_(options.run_directory),
        signals_(awaited_signals()) {
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
  }
  ~Parent() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;

  int asked() const { return asked_; }
  int run() {
    const std::vector<std::string> words =
        command_of(options_.job, this_host(options_.job), goes_on());
    if (goes_on()) {
      const RunWatch::Look look = watch_.look(kLookWell);
      seen_before_ = look.seen;
      told_.durable_step = look.durable_step;
    }
    for (;;) {
      const int status = run_once(words);
      const Restarts::Decision next = restarts_.after(end_of_start(status));
      if (!next.why.empty()) options_.say(next.why);
      if (was_killed_) tell_of_leftovers();
      if (ends_at_once_) return status_after(asked_);
      if (!next.again) return leave(next);
      int signal = next_asking(next.pause);
      while (signal == 0) {
        const RunWatch::Look look = watch_.look(kLookWell, true);
        told_.durable_step = std::max(told_.durable_step, look.durable_step);
        if (look.problem.empty()) break;
        const Restarts::Decision wait = restarts_.wait(look.problem, now());
        if (!wait.why.empty()) options_.say(wait.why);
        if (!wait.again) return leave(wait);
        signal = next_asking(options_.beat);
      }
      // The job before has crashed: its last steps are not on the disk.
      if (signal != 0) return signal == SIGUSR1 ? status::kNotDurable : status_after(signal);
    }
  }

 private:
  bool goes_on() const { return !options_.run_directory.empty(); }
  static seconds now() {
    return std::chrono::duration_cast<seconds>(std::chrono::steady_clock::now().time_since_epoch());
  }

  // A signal that comes between two starts.
  int next_asking(milliseconds pause) {
    for (;;) {
      const int signal = next_signal(signals_, pause);
      if (signal != SIGCHLD) return signal;  // of a process that an earlier start has left
    }
  }

  // A run may lose its storage right after its first steps: until a look has found it, the next
  // start would begin anew.
  milliseconds beat() const {
    const bool waits = goes_on() && !watch_.expects_run();
    return waits ? std::min(options_.beat, kFirstBeat) : options_.beat;
  }

  // Also what the next start is told.
  StartEnd end_of_start(int status) {
    StartEnd end = {.status = status, .asked = asked_, .at = now()};
    if (goes_on()) {
      const bool again = status != status::kDone && asked_ == 0 && options_.restarts.most > 0;
      const RunWatch::Look look = watch_.look(kLookWell, again);
      note_step(look);
      end.durable_step = told_.durable_step = look.durable_step;
      end.problem = look.problem;
    }
    end.stepped = stepped_;
    if (stepped_ || told_.ended == 0) {
      told_.ended = unix_time();
      told_.status = status;
      told_.cause = hung_;
    }
    return end;
  }

  // A job that has done a step has shown so in progress.json.
  void note_step(const RunWatch::Look& look) {
    if (look.seen == 0 || look.seen == seen_before_) return;
    stepped_ = true;
    seen_before_ = look.seen;
  }

  // What the run directory says of the end where the parent gives up.
  int leave(const Restarts::Decision& last) {
    if (last.status == status::kGaveUp && !last.why.empty())
      watch_.leave_end(
          {.time = unix_time(), .status = last.status, .cause = "fsdp launch: " + last.why},
          kLookWell);
    return last.status;
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
    told_.by_parent = static_cast<int>(restarts_.count());
    const pid_t child = start(options_, words, variables_of(told_), signals_);
    Silence silence(child, options_.silence);
    stepped_ = false;
    hung_.clear();
    // Until the launcher and its ranks listen to SIGUSR1, it is lost. They take it any number of
    // times.
    bool repeats = false;
    for (;;) {
      const bool waits_to_kill = ends_at_once_ || !hung_.empty();
      const int signal = next_signal(signals_, waits_to_kill ? milliseconds(kUntilKill) : beat());
      // SIGCHLD is lost where another thread takes it.
      if (signal == SIGCHLD || signal == 0) {
        if (const std::optional<int> status = ended(child, was_killed_)) {
          kill_hung();  // ranks that mpirun has left
          return *status;
        }
      }
      if (signal == SIGCHLD) continue;
      if (signal == 0) {
        if (waits_to_kill) ::kill(-child, SIGKILL);
        kill_hung();
        if (repeats && !waits_to_kill) ::kill(child, SIGUSR1);
        if (goes_on() && !waits_to_kill) look_after(child, silence);
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

  // A job that hangs as a whole is told to end, and killed ten seconds later (mpirun: one second).
  void look_after(pid_t child, Silence& silence) {
    const RunWatch::Look look = watch_.look(kLook);
    if (look.problem.empty()) note_step(look);
    hung_ = silence.after(look, std::chrono::steady_clock::now());
    if (hung_.empty()) return;
    options_.say(hung_ + ": the job is ended");
    hung_processes_ = processes_below(child);
    for (const int signal : {SIGTERM, SIGCONT}) ::kill(-child, signal);
  }

  void kill_hung() {
    for (const pid_t process : hung_processes_) ::kill(process, SIGKILL);
    hung_processes_.clear();
  }

  void tell_of_leftovers() const {
    if (options_.job.launcher != Launcher::kMpirun) return;
    const std::string note = leftovers_note("/dev/shm", "/tmp", ::geteuid());
    if (!note.empty()) options_.say("note: " + note);
  }

  const ParentOptions& options_;
  Restarts restarts_;
  RunWatch watch_;
  sigset_t signals_, before_;
  StartsBefore told_;                  // to the next start
  double seen_before_ = 0;             // the last step that was seen, Unix time
  bool stepped_ = false;               // this start has come to a step
  std::string hung_;                   // why this start is being ended; "": it is not
  std::vector<pid_t> hung_processes_;  // below it
  bool ends_at_once_ = false;          // a second signal came
  bool was_killed_ = false;            // the launcher of the last start
  int asked_ = 0;                      // the first signal that told the parent to stop
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
