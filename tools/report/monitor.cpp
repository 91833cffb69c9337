// The thread of samples.
#include "tools/report/monitor.h"

#include <new>

namespace fsdp::tools {

Monitor::Monitor(MonitorOptions options)
    : options_(std::move(options)),
      rows_(options_.file, rank_columns(), 1, options_.detailed / options_.interval,
            options_.later / options_.interval) {
  if (options_.gpu) gpu_.emplace(*options_.gpu);
  if (!options_.host_file.empty()) {
    host_rows_.emplace(options_.host_file, host_columns(), 2, options_.detailed / options_.interval,
                       options_.later / options_.interval);
    activity_before_ = options_.activity();
  }
  before_ = options_.counters();
  sampled_ = Clock::now();
  thread_ = std::thread([this] { run(); });
}

Monitor::~Monitor() {
  try {
    stop();
  } catch (const std::exception&) {  // an error ends the run
  }
}

void Monitor::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  const bool any = sums_.of[kResident].count > 0;
  if (!any || Clock::now() - sampled_ >= options_.interval / 2) takes_sample();
  rows_.finish();
  problem_ = rows_.problem();
  if (host_rows_) {
    host_rows_->finish();
    if (problem_.empty()) problem_ = host_rows_->problem();
  }
  if (problem_.empty() && gave_up_) {
    problem_ = options_.file.string() + ": rows are missing: no memory was left for them";
  }
}

void Monitor::run() {
  const auto interval = std::chrono::duration_cast<Clock::duration>(options_.interval);
  std::unique_lock lock(mutex_);
  // A sample that was late does not make the next one early: its interval would be too short for
  // counters that count in hundredths of a second.
  while (
      !wake_.wait_for(lock, interval - (Clock::now() - sampled_), [this] { return stopping_; })) {
    lock.unlock();
    if (!takes_sample()) return;
    lock.lock();
  }
}

// A run that lacks memory says so itself, in its own thread.
bool Monitor::takes_sample() {
  try {
    if (!gave_up_) sample();
  } catch (const std::bad_alloc&) {
    gave_up_ = true;
  }
  return !gave_up_;
}

void Monitor::sample() {
  const HostCounters now = options_.counters();
  const Clock::time_point time = Clock::now();
  const double seconds = std::chrono::duration<double>(time - sampled_).count();
  Sample sample = sample_of_rank(before_, now, seconds, ticks_per_second());
  before_ = now;
  sampled_ = time;
  if (gpu_) {
    const size_t allocated = options_.ledger ? options_.ledger->usage().total_current : 0;
    add_gpu(sample, gpu_->read(), allocated);
  }
  sums_.add(sample);
  rows_.add(sample);
  if (!host_rows_) return;
  const HostActivity activity = options_.activity();
  host_rows_->add(sample_of_host(activity_before_, activity, seconds, sample[kCpu]));
  activity_before_ = activity;
}

}  // namespace fsdp::tools
