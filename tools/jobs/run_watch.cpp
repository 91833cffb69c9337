// Contract: tools/jobs/run_watch.h.
#include "tools/jobs/run_watch.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io/file.h"
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

struct RunWatch::Call {
  std::mutex mutex;
  std::condition_variable wakes;
  bool done = false;
  Look found;

  bool wait(milliseconds limit) {
    std::unique_lock lock(mutex);
    return wakes.wait_for(lock, limit, [this] { return done; });
  }
};

RunWatch::RunWatch(fs::path run_directory) : directory_(std::move(run_directory)) {}

RunWatch::~RunWatch() {
  if (call_) call_->wait(milliseconds(500));
}

void RunWatch::begin(std::function<Look()> work) {
  auto call = std::make_shared<Call>();
  try {
    std::thread([call, work = std::move(work)] {
      const Look found = work();
      const std::lock_guard lock(call->mutex);
      call->found = found;
      call->done = true;
      call->wakes.notify_all();
    }).detach();
    call_ = std::move(call);
  } catch (const std::system_error&) {  // no thread to spare: seen later
  }
}

RunWatch::Look RunWatch::look(milliseconds limit, bool writes) {
  const bool taken = call_ && call_->wait(limit);
  if (taken) take();
  if (!call_) {
    begin([directory = directory_, writes, known = last_.durable_step > 0, expected = expects_] {
      return look_at(directory, known, expected, writes);
    });
    if (call_ && call_->wait(limit)) {
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
  if (call_ && !call_->wait(limit)) return;
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
  if (call_) call_->wait(limit);
}

void RunWatch::take() {
  const int64_t before = last_.durable_step;
  last_ = call_->found;
  if (last_.durable_step == 0) last_.durable_step = before;  // it could not be read
  expects_ = expects_ || last_.seen > 0 || last_.durable_step > 0;
  call_.reset();
}

}  // namespace fsdp::tools
