// The queue, its worker thread, events and poisoning. See [Note: poison] in stream.h.
#include "kernels/cpu/stream.h"

#include <chrono>
#include <system_error>
#include <utility>

#include <pthread.h>

#include "core/io/patience.h"
#include "core/machine_error.h"
#include "kernels/cpu/matmul.h"

namespace fsdp::cpu {

[[noreturn]] static void rethrow(const StreamError& error) {
  if (error.of_machine) throw MachineError(error.message);
  throw Error(error.message);
}

static StreamErrorPtr kept(const std::exception& error, const std::string& where) {
  return std::make_shared<const StreamError>(where + error.what(), is_of_machine(error));
}

void CpuEvent::wait() {
  if (const StreamErrorPtr error = block()) rethrow(*error);
}

bool CpuEvent::ready() const {
  std::lock_guard lock(mutex_);
  return done_;
}

StreamErrorPtr CpuEvent::block() const {
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [&] { return done_; });
  return error_;
}

void CpuEvent::complete(StreamErrorPtr error) {
  std::lock_guard lock(mutex_);  // held while notifying: a waiter may destroy the event
  error_ = std::move(error);
  done_ = true;
  completed_.notify_all();
}

CpuStream::CpuStream(CpuBackend& backend, std::string name, int threads)
    : Stream(backend, std::move(name)),
      options_(backend.options()),
      scratch_(threads),
      team_(threads),
      matmul_cache_(std::make_unique<MatmulCache>(options_.fixed_tiles)) {
  if (options_.synchronous) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    fail(
        "[cpu] stream {}: its thread cannot be started: {}; threads count towards the limits of "
        "addresses (ulimit -v) and of processes (ulimit -u)",
        this->name(), error.what());
  }
}

CpuStream::~CpuStream() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  pushed_.notify_one();
  thread_.join();
}

void CpuStream::push(Entry entry) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(entry));
  }
  pushed_.notify_one();
}

// In synchronous mode a task's error is thrown here, at the call that caused it.
void CpuStream::enqueue(Task task) {
  if (options_.synchronous) {
    run(task);
    if (const StreamErrorPtr error = std::exchange(error_, nullptr)) rethrow(*error);
  } else {
    push({std::move(task), nullptr});
  }
}

void CpuStream::enqueue_control(std::function<void()> control) {
  if (options_.synchronous) {
    control();
  } else {
    push({{}, std::move(control)});
  }
}

void CpuStream::work() {
  pthread_setname_np(pthread_self(), name().substr(0, 15).c_str());
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      pushed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    if (entry.control) {
      entry.control();
    } else {
      run(entry.task);
    }
  }
}

void CpuStream::run(Task& task) {
  if (error_) return;
  const int64_t begin = task.trace ? trace_clock_ns() : 0;  // an injected delay makes a slow task
  if (options_.delay) {
    const int microseconds = options_.delay(name(), task.name);
    if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  }
  try {
    Worker worker{team_, *matmul_cache_};
    task.run(worker);
  } catch (const std::exception& e) {
    const std::string scope = task.scope && !task.scope->empty() ? "[" + *task.scope + "] " : "";
    error_ = kept(e, scope + task.name + ": ");
  }
  if (task.trace) {
    task.trace->record({task.name, task.scope ? *task.scope : "", name(), task.enqueued_ns, begin,
                        trace_clock_ns(), task.bytes, task.sequence});
  }
}

std::shared_ptr<CpuEvent> CpuStream::record() {
  auto event = std::make_shared<CpuEvent>(name());
  enqueue_control([this, event] { event->complete(error_); });
  return event;
}

void CpuStream::wait(const EventPtr& event) {
  if (options_.synchronous) return event->wait();
  const auto recorded = std::dynamic_pointer_cast<CpuEvent>(event);
  if (recorded && options_.ignore_wait && options_.ignore_wait(name(), recorded->stream_name())) {
    return;
  }
  enqueue_control([this, event, recorded] {
    StreamErrorPtr error;
    if (recorded) {
      error = recorded->block();
    } else {  // of another backend
      try {
        event->wait();
      } catch (const std::exception& e) {
        error = kept(e, "");
      }
    }
    if (!error_) error_ = error;
  });
}

void CpuStream::synchronize() {
  auto event = std::make_shared<CpuEvent>(name());
  enqueue_control([this, event] { event->complete(std::exchange(error_, nullptr)); });
  event->wait();
}

}  // namespace fsdp::cpu
