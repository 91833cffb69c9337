// Contract: tools/plan/each_index.h.
#include "tools/plan/each_index.h"

#include <atomic>
#include <thread>
#include <vector>

namespace fsdp::tools {

void for_each_index(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto some = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) others.emplace_back(some);
  some();
}

}  // namespace fsdp::tools
