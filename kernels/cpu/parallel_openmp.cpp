// ThreadTeam on OpenMP: shares its threads with oneDNN. Scratch is in parallel.cpp.
#include <exception>
#include <mutex>

#include <omp.h>

#include "kernels/cpu/parallel.h"

namespace fsdp::cpu {

struct ThreadTeam::Pool {};

ThreadTeam::ThreadTeam(int threads) : threads_(threads), scratch_(static_cast<size_t>(threads)) {}
ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::lead_libraries(bool with_team) const {
  omp_set_num_threads(with_team ? threads_ : 1);
}

LibraryThreads::LibraryThreads(int threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}
LibraryThreads::~LibraryThreads() { omp_set_num_threads(before_); }

void ThreadTeam::run_tasks(int64_t tasks, TaskFunction f) {
  std::mutex mutex;
  std::exception_ptr first;
  const int threads = static_cast<int>(std::min<int64_t>(threads_, tasks));
#pragma omp parallel num_threads(threads)
  {
    // fewer threads than asked for is possible (OMP_THREAD_LIMIT, nesting)
    const int thread = omp_get_thread_num(), team = omp_get_num_threads();
    try {
      for (int64_t task = tasks * thread / team; task < tasks * (thread + 1) / team; ++task) {
        f(task, thread);
      }
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace fsdp::cpu
