// Contract: tools/train/prefetch.h.
#include "tools/train/prefetch.h"

#include <chrono>
#include <utility>

#include "core/error.h"

namespace fsdp::tools {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Prefetch::Prefetch(BatchSource batches, int64_t ahead)
    : batches_(std::move(batches)), ahead_(static_cast<size_t>(ahead)) {}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

BatchSource Prefetch::source() {
  BatchSource out = batches_;
  out.get = [this](int64_t index) { return take(index); };
  return out;
}

Prefetch::Made Prefetch::make(int64_t index) const {
  const auto start = std::chrono::steady_clock::now();
  Made out;
  try {
    out.batch = batches_.get(index);
  } catch (...) {
    out.error = std::current_exception();
  }
  out.seconds = seconds_since(start);
  return out;
}

void Prefetch::work(int64_t first) {
  for (int64_t index = first; batches_.batches == 0 || index < batches_.batches; ++index) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || made_.size() < ahead_; });
      if (ends_) return;
    }
    Made made = make(index);
    const bool failed = made.error != nullptr;
    {
      const std::lock_guard lock(mutex_);
      made_.push_back(std::move(made));
    }
    changed_.notify_all();
    if (failed) return;
  }
}

Batch Prefetch::take(int64_t index) {
  FSDP_CHECK(batches_.batches == 0 || index < batches_.batches,
             "[prefetch] batch: expected one of {}, got number {}", batches_.batches, index);
  FSDP_CHECK(next_ < 0 || index == next_, "[prefetch] batch: expected number {}, got {}", next_,
             index);
  const bool first = next_ < 0;
  next_ = index + 1;
  double waited = 0;
  Made made;
  if (ahead_ == 0) {
    made = make(index);
    waited = made.seconds;
  } else {
    if (first) thread_ = std::thread([this, index] { work(index); });
    std::unique_lock lock(mutex_);
    if (made_.empty()) {
      const auto start = std::chrono::steady_clock::now();
      changed_.wait(lock, [&] { return !made_.empty(); });
      waited = seconds_since(start);
    }
    made = std::move(made_.front());
    made_.pop_front();
  }
  changed_.notify_all();
  if (!first) {
    times_.made_s += made.seconds;
    times_.waited_s += waited;
  }
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.batch);
}

}  // namespace fsdp::tools
