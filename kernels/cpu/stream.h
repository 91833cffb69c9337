// The CPU's streams and events: one worker thread per stream runs its tasks in the order they were
// enqueued; every wait sleeps on a condition variable.
// Not here: what tasks do (the kernels), which stream memory belongs to (allocator.h).
//
// [Note: poison] A task that throws poisons its stream: later tasks are skipped, events recorded
// later carry the error, and a stream that waits on such an event is poisoned too. A host wait
// (synchronize, Event::wait) rethrows it; synchronize also clears it, so that the stream can be
// used for the next step. Errors read "[scope] task: message".
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/scratch.h"

namespace fsdp::cpu {

// An error as a stream keeps it. Not the exception itself: several threads would throw the one
// object.
struct StreamError {
  std::string message;
  bool of_machine = false;  // core/io/patience.h
};
using StreamErrorPtr = std::shared_ptr<const StreamError>;  // null: no error

class CpuEvent final : public Event {
 public:
  explicit CpuEvent(std::string stream_name) : stream_name_(std::move(stream_name)) {}

  void wait() override;  // blocks; rethrows the error of the stream it was recorded on
  bool ready() const override;
  StreamErrorPtr block() const;  // blocks; returns the error
  void complete(StreamErrorPtr error);
  const std::string& stream_name() const { return stream_name_; }

 private:
  std::string stream_name_;
  mutable std::mutex mutex_;
  mutable std::condition_variable completed_;
  bool done_ = false;
  StreamErrorPtr error_;
};

// One entry of a stream's queue.
struct Task {
  std::function<void(Worker&)> run;
  std::string name;  // "matmul"
  std::shared_ptr<const std::string> scope;
  Trace* trace = nullptr;  // must live until the stream is synchronized
  int64_t bytes = 0;       // the last three are for the trace
  int64_t enqueued_ns = 0;
  int64_t sequence = 0;
};

class CpuStream final : public Stream {
 public:
  CpuStream(CpuBackend& backend, std::string name, int threads);
  ~CpuStream() override;  // runs what is queued, then ends the worker

  void enqueue(Task task);
  // Work on the order itself: never skipped, delayed or traced; must not throw.
  void enqueue_control(std::function<void()> control);
  std::shared_ptr<CpuEvent> record();
  void wait(const EventPtr& event);
  void synchronize();
  // By how much the scratch memory of this stream's threads will have grown after a task.
  size_t plan_scratch(const ScratchNeed& need) { return scratch_.plan(need); }

 private:
  struct Entry {
    Task task;
    std::function<void()> control;  // instead of task
  };
  void push(Entry entry);
  void work();  // the worker thread's loop
  void run(Task& task);

  const CpuOptions& options_;
  PlannedScratch scratch_;  // of the host, which plans
  ThreadTeam team_;
  std::unique_ptr<MatmulCache> matmul_cache_;
  StreamErrorPtr error_;  // the poison; touched by the worker only

  std::mutex mutex_;         // of the two below
  std::deque<Entry> queue_;  // as far as the host runs ahead
  bool stopping_ = false;
  std::condition_variable pushed_;
  std::thread thread_;  // last: starts when everything else is there; none in synchronous mode
};

}  // namespace fsdp::cpu
