// How far the ranks of a job have come with work that one does while the others wait for it:
// reading a text, loading, saving. Who waits does not count the time in which somebody makes
// progress (comm/patience.h). Any thread may call these. Not here: how the ranks tell each other
// (tools/launch/heartbeat.h; ranks that are threads have one object).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace fsdp::comm {

class WorkProgress {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kStorageLimit{1800};

  // `storage_limit`: how long one call of the file system may last and still count as progress.
  explicit WorkProgress(std::chrono::seconds storage_limit = kStorageLimit)
      : storage_limit_(storage_limit) {}

  // Bytes, rows, files: whatever is done. Only that the number changes matters.
  void add(uint64_t units) { done_.fetch_add(units, std::memory_order_relaxed); }
  // Runs a call of the file system, which may take long and tells nothing meanwhile.
  template <typename Call>
  auto during(Call&& call) {
    const StorageCall scope(*this);
    return call();
  }

  // Of this object's ranks. While a call of the file system runs, its seconds count.
  uint64_t own() const {
    const int64_t since = since_ns_.load(std::memory_order_relaxed);
    if (since == 0) return done_.load(std::memory_order_relaxed);
    const auto lasted = std::chrono::duration_cast<std::chrono::seconds>(
        Clock::now().time_since_epoch() - std::chrono::nanoseconds(since));
    return done_.load(std::memory_order_relaxed) +
           static_cast<uint64_t>(std::min(lasted, storage_limit_).count());
  }
  // Of all other ranks, as they were heard of.
  void hear(uint64_t others) { heard_.store(others, std::memory_order_relaxed); }
  uint64_t of_job() const { return own() + heard_.load(std::memory_order_relaxed); }

 private:
  class StorageCall {
   public:
    explicit StorageCall(WorkProgress& progress) : progress_(progress) {
      const std::lock_guard lock(progress_.mutex_);
      if (progress_.open_++ > 0) return;
      progress_.since_ns_ = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
    }
    ~StorageCall() {
      const std::lock_guard lock(progress_.mutex_);
      if (--progress_.open_ == 0) progress_.since_ns_ = 0;
      progress_.add(1);
    }
    StorageCall(const StorageCall&) = delete;
    StorageCall& operator=(const StorageCall&) = delete;

   private:
    WorkProgress& progress_;
  };

  std::chrono::seconds storage_limit_;
  std::atomic<uint64_t> done_ = 0, heard_ = 0;
  std::atomic<int64_t> since_ns_ = 0;  // since when some call of the file system runs; 0: none does
  std::mutex mutex_;
  int open_ = 0;  // such calls, of all threads
};

}  // namespace fsdp::comm
