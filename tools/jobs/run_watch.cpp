// Contract: tools/jobs/run_watch.h.
#include "tools/jobs/run_watch.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io/file.h"
#include "tools/launch/ring_dump.h"
#include "tools/report/run_costs.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// A file that is half written says nothing new.
void read_progress_of(const fs::path& file, RunWatch::Look& look) {
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0) return;
  look.sign_of_life = int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
  try {
    look.seen = read_progress(file).seen;
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
  }
}

// A name that the next start removes, should this process be killed in between.
void try_writing(const fs::path& directory) {
  const fs::path file = directory / fmt::format(".shared-{:x}", ::getpid());
  write_file_atomically(file, "a job is about to go on here\n");
  fs::remove(file);
}

// `known`: the run has had a checkpoint, `expected`: or a step.
RunWatch::Look look_at(const fs::path& directory, bool known, bool expected, bool writes) {
  RunWatch::Look look;
  try {
    if (!is_there(directory)) {
      if (known || expected)
        look.problem = directory.string() + " is not there: has the mount gone?";
      return look;
    }
    read_progress_of(directory / "progress.json", look);
    const RunRecord record = read_run_record(directory);
    if (record.last) look.durable_step = record.last->step;
    const bool empty = record.id.empty() && !record.last && look.sign_of_life == 0;
    if ((known && !record.last) || (expected && empty))
      look.problem = directory.string() + " has no run any more: has the mount gone?";
    else if (writes)
      try_writing(directory);
  } catch (const std::exception& error) {
    look.problem = error.what();
  }
  return look;
}

}  // namespace

RunWatch::RunWatch(fs::path run_directory) : directory_(std::move(run_directory)) {}

RunWatch::~RunWatch() { returned_within(milliseconds(500)); }

bool RunWatch::returned_within(milliseconds limit) const {
  return call_.valid() && call_.wait_for(limit) == std::future_status::ready;
}

void RunWatch::begin(std::function<Look()> work) {
  try {
    std::packaged_task<Look()> look(std::move(work));
    std::future<Look> found = look.get_future();
    std::thread(std::move(look)).detach();
    call_ = std::move(found);
  } catch (const std::system_error&) {  // no thread to spare: seen later
  }
}

RunWatch::Look RunWatch::look(milliseconds limit, bool writes) {
  const bool taken = returned_within(limit);
  if (taken) take();
  if (!call_.valid()) {
    begin([directory = directory_, writes, known = last_.durable_step > 0, expected = expects_] {
      return look_at(directory, known, expected, writes);
    });
    if (returned_within(limit)) {
      take();
      return last_;
    }
    if (taken && !writes) return last_;  // the one before has not tried to write
  }
  Look late = last_;
  late.problem = directory_.string() + " does not answer";
  return late;
}

void RunWatch::leave_end(EndNote note, milliseconds limit) {
  if (call_.valid() && !returned_within(limit)) return;
  begin([note, directory = directory_]() mutable {
    try {
      if (const auto before = read_end_note(directory)) {
        note.cause += "; the last start: " + before->cause;
        note.host = before->host, note.rank = before->rank;
        fs::remove(directory / kEndNote);
      }
      leave_end_note(directory, note);
    } catch (const std::exception&) {  // the storage is what the parent has given up on
    }
    return Look();
  });
  returned_within(limit);
}

void RunWatch::take() {
  const int64_t before = last_.durable_step;
  last_ = call_.get();
  if (last_.durable_step == 0) last_.durable_step = before;  // it could not be read
  expects_ = expects_ || last_.seen > 0 || last_.durable_step > 0;
}

namespace {

using std::chrono::seconds;

std::string text_of(std::chrono::duration<double> time, const std::string& why) {
  return fmt::format("no sign of life of the job for {:.0f} s: {}", time.count(), why);
}

}  // namespace

std::string Silence::after(const RunWatch::Look& look, Clock::time_point now) {
  constexpr seconds kLeast(60);   // a file system may know late that a file has changed
  constexpr seconds kLongest(2);  // beyond, this process did not run either
  const auto passed = std::min<std::chrono::duration<double>>(now - last_, kLongest);
  last_ = now;
  stopped_ = process_state(job_) == "T" ? stopped_ + passed : passed.zero();
  if (stopped_ > limit_) return text_of(stopped_, fmt::format("process {} is stopped", job_));
  if (!look.problem.empty()) return "";
  // What an earlier start has left is no sign of this one.
  if (look.sign_of_life != sign_) {
    lives_ = lives_ || sign_ >= 0;
    sign_ = look.sign_of_life;
    silent_ = passed.zero();
  } else if (lives_) {
    silent_ += passed;
  }
  // sign_ 0: no file, which is no stopped job: somebody has removed it.
  if (sign_ == 0 || silent_ <= std::max(limit_, kLeast)) return "";
  return text_of(silent_, "nothing touches progress.json in the run directory");
}

std::vector<pid_t> processes_below(pid_t process) {
  std::multimap<pid_t, pid_t> children;
  for (const std::string& name : names_in("/proc")) {
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::ifstream stat("/proc/" + name + "/stat");
    const std::string text((std::istreambuf_iterator<char>(stat)), {});
    const size_t state = text.rfind(") ");  // "12 (name of it) S 7 ...": its parent is 7
    if (state == text.npos || text.size() < state + 5) continue;
    children.emplace(std::atoi(text.c_str() + state + 4), std::atoi(name.c_str()));
  }
  std::vector<pid_t> found = {process};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [first, end] = children.equal_range(found[i]);
    for (auto child = first; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

}  // namespace fsdp::tools
