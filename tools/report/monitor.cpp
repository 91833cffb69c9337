// The thread of samples.
#include "tools/report/monitor.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <new>

#include <fmt/format.h>

#include "core/error.h"

namespace fsdp::tools {
namespace {

// "2025-03-01T12:00:00.250Z"
std::string time_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = now.time_since_epoch() % std::chrono::seconds(1);
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char text[64] = "";
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text,
                     std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

}  // namespace

Monitor::Monitor(MonitorOptions options) : options_(std::move(options)) {
  if (options_.gpu) gpu_.emplace(*options_.gpu);
  try {
    log_ = LineLog(options_.file);
    if (log_.is_empty()) log_.append(sample_header());
    std::ifstream file(options_.file);
    rows_ = std::count(std::istreambuf_iterator<char>(file), {}, '\n') - 1;
  } catch (const Error& error) {
    problem_ = error.what();  // the means do not need the file
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
  if (row_samples_ > 0) write_row();
  log_.retry();
  if (problem_.empty()) problem_ = log_.problem();
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
  Sample sample = host_sample(before_, now, std::chrono::duration<double>(time - sampled_).count(),
                              ticks_per_second());
  before_ = now;
  sampled_ = time;
  if (gpu_) {
    const size_t allocated = options_.ledger ? options_.ledger->usage().total_current : 0;
    add_gpu(sample, gpu_->read(), allocated);
  }
  sums_.add(sample);
  row_.add(sample);
  ++row_samples_;
  const bool detailed = static_cast<double>(rows_) < options_.detailed / options_.interval;
  if (detailed || static_cast<double>(row_samples_) >= options_.later / options_.interval) {
    write_row();
  }
}

void Monitor::write_row() {
  log_.append(sample_row(time_now(), row_.means()));
  row_ = {};
  row_samples_ = 0;
  ++rows_;
}

}  // namespace fsdp::tools
