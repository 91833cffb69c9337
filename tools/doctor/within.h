// A look at something that may not answer: a file system whose server is gone, a GPU that hangs.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>

namespace fsdp::tools::doctor {

// Returns or throws as `work` does; nothing when `work` takes longer. Then its thread is left
// behind, even beyond the end of the command, so `work` owns all that it touches.
template <typename T>
std::optional<T> within(std::chrono::milliseconds limit, std::function<T()> work) {
  const auto task = std::make_shared<std::packaged_task<T()>>(std::move(work));
  std::future<T> result = task->get_future();
  std::thread thread([task] { (*task)(); });
  if (result.wait_for(limit) != std::future_status::ready) {
    thread.detach();
    return std::nullopt;
  }
  thread.join();  // at its end: what it threw is this thread's alone
  return result.get();
}

}  // namespace fsdp::tools::doctor
