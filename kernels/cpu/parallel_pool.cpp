// ThreadTeam on plain threads, for ThreadSanitizer, which does not understand GCC's OpenMP, and for
// compilers without OpenMP. Threads sleep between kernels.
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/cpu/parallel.h"

namespace fsdp::cpu {

struct ThreadTeam::Pool {
  std::mutex mutex;  // of everything below
  std::condition_variable started, finished;
  const TaskFunction* function = nullptr;  // of the current round
  int64_t tasks = 0;
  int64_t round = 0;
  int running = 0;  // helpers that have not finished the round
  bool stopping = false;
  std::exception_ptr first;
  std::vector<std::thread> helpers;

  // Thread `thread` of `team`: its contiguous range of the tasks.
  void run_share(const TaskFunction& f, int64_t count, int thread, int team) {
    try {
      for (int64_t task = count * thread / team; task < count * (thread + 1) / team; ++task) {
        f(task, thread);
      }
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  }

  void help(int thread, int team) {
    std::unique_lock lock(mutex);
    for (int64_t seen = 0;;) {
      started.wait(lock, [&] { return stopping || round != seen; });
      if (stopping) return;
      seen = round;
      const TaskFunction f = *function;
      const int64_t count = tasks;
      lock.unlock();
      run_share(f, count, thread, team);
      lock.lock();
      if (--running == 0) finished.notify_one();
    }
  }
};

ThreadTeam::ThreadTeam(int threads)
    : threads_(threads), pool_(std::make_unique<Pool>()), scratch_(static_cast<size_t>(threads)) {
  for (int thread = 1; thread < threads; ++thread) {
    pool_->helpers.emplace_back([this, thread, threads] { pool_->help(thread, threads); });
  }
}

ThreadTeam::~ThreadTeam() {
  {
    std::lock_guard lock(pool_->mutex);
    pool_->stopping = true;
  }
  pool_->started.notify_all();
  for (std::thread& helper : pool_->helpers) helper.join();
}

void ThreadTeam::lead_libraries(bool) const {}  // none here

LibraryThreads::LibraryThreads(int) : before_(0) {}
LibraryThreads::~LibraryThreads() = default;

void ThreadTeam::run_tasks(int64_t tasks, TaskFunction f) {
  Pool& pool = *pool_;
  {
    std::lock_guard lock(pool.mutex);
    pool.function = &f;
    pool.tasks = tasks;
    pool.running = threads_ - 1;
    pool.first = nullptr;
    ++pool.round;
  }
  pool.started.notify_all();
  pool.run_share(f, tasks, 0, threads_);
  std::unique_lock lock(pool.mutex);
  pool.finished.wait(lock, [&] { return pool.running == 0; });
  if (pool.first) std::rethrow_exception(std::exchange(pool.first, nullptr));
}

}  // namespace fsdp::cpu
