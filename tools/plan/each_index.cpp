// Contract: tools/plan/each_index.h.
#include "tools/plan/each_index.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace fsdp::tools {

void for_each_index(size_t count, const std::function<void(size_t)>& work, size_t threads) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr first;
  const auto some = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        next = count;
        const std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
      }
    }
  };
  if (threads == 0) threads = std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(some);
    some();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace fsdp::tools
