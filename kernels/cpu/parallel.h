// The one way CPU kernels use several threads. Tasks are the same whatever the number of threads,
// so that a sum over per-task partials, added in task order, is the same too.
// parallel_openmp.cpp runs it on OpenMP; parallel_pool.cpp on plain threads, for ThreadSanitizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp::cpu {

// Non-owning reference to a callable void(int64_t task, int thread).
class TaskFunction {
 public:
  template <typename F>
  explicit TaskFunction(F& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* o, int64_t task, int thread) { (*static_cast<F*>(o))(task, thread); }) {}
  void operator()(int64_t task, int thread) const { call_(object_, task, thread); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int);
};

// A team of threads that belongs to one stream worker; used from that worker's thread only.
class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return threads_; }
  // f(task, thread) for task in [0, tasks), contiguous ranges of tasks per thread; returns when all
  // are done. The first exception of a task is rethrown.
  template <typename F>
  void run(int64_t tasks, F&& f) {
    if (tasks <= 0) return;
    if (tasks == 1 || threads_ == 1) {
      for (int64_t i = 0; i < tasks; ++i) f(i, 0);
    } else {
      run_tasks(tasks, TaskFunction(f));
    }
  }
  // body(begin, end) over [0, n) in pieces of `grain`.
  template <typename F>
  void parallel_for(int64_t n, int64_t grain, F&& body) {
    run((n + grain - 1) / grain,
        [&](int64_t task, int) { body(task * grain, std::min(n, (task + 1) * grain)); });
  }
  // Libraries on OpenMP that this thread calls from now on use the team's threads, or one.
  void lead_libraries(bool with_team) const;
  // Scratch of one thread, reused between kernels, 64-byte aligned, contents undefined.
  void* scratch(int thread, size_t bytes);

 private:
  void run_tasks(int64_t tasks, TaskFunction f);

  struct Pool;  // threads of parallel_pool.cpp; empty with OpenMP
  struct Scratch {
    std::unique_ptr<std::byte[], void (*)(std::byte*)> data{nullptr, nullptr};
    size_t bytes = 0;
  };
  int threads_;
  std::unique_ptr<Pool> pool_;
  std::vector<Scratch> scratch_;
};

// While alive, libraries on OpenMP that this thread calls see so many threads.
class LibraryThreads {
 public:
  explicit LibraryThreads(int threads);
  ~LibraryThreads();
  LibraryThreads(const LibraryThreads&) = delete;
  LibraryThreads& operator=(const LibraryThreads&) = delete;

 private:
  int before_;
};

// Compiles a hot loop for AVX-512 besides the build's x86-64-v3 and picks at load time.
// Not with sanitizers: their runtime is not up when the choice is made.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define FSDP_WIDE_LOOPS __attribute__((target_clones("arch=x86-64-v4", "default")))
#else
#define FSDP_WIDE_LOOPS
#endif

}  // namespace fsdp::cpu
