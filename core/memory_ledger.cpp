// Counting of bytes by category.
#include "core/memory_ledger.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/text/byte_size.h"
#include "core/trace.h"

namespace fsdp {

std::string_view name_of(MemoryCategory category) {
  constexpr std::array<std::string_view, kMemoryCategories> kNames = {
      "parameter shard", "unsharded parameter", "gradient",
      "optimizer state", "activation",          "key-value cache",
      "communication",   "transport staging",   "workspace"};
  return kNames[static_cast<size_t>(category)];
}

MemoryLedger::MemoryLedger() {
  predictable_.fill(true);
  set_unpredictable(MemoryCategory::kTransportStaging);
}

void MemoryLedger::set_unpredictable(MemoryCategory category) {
  predictable_[static_cast<size_t>(category)] = false;
}

void MemoryLedger::add(MemoryCategory category, size_t bytes) {
  const size_t rounded = rounded_bytes(bytes);
  const size_t i = static_cast<size_t>(category);
  const std::lock_guard lock(mutex_);
  usage_.current[i] += rounded;
  usage_.peak[i] = std::max(usage_.peak[i], usage_.current[i]);
  usage_.total_current += rounded;
  if (usage_.total_current > usage_.total_peak) {
    usage_.total_peak = usage_.total_current;
    usage_.at_peak = usage_.current;
  }
  if (predictable_[i]) {
    usage_.predictable_current += rounded;
    usage_.predictable_peak = std::max(usage_.predictable_peak, usage_.predictable_current);
  }
  sample(category);
}

void MemoryLedger::subtract(MemoryCategory category, size_t bytes) {
  const size_t rounded = rounded_bytes(bytes);
  const std::lock_guard lock(mutex_);
  usage_.current[static_cast<size_t>(category)] -= rounded;
  usage_.total_current -= rounded;
  if (predictable_[static_cast<size_t>(category)]) usage_.predictable_current -= rounded;
  sample(category);
}

void MemoryLedger::add_scratch(size_t bytes) {
  const std::lock_guard lock(mutex_);
  usage_.scratch += bytes;
}

size_t MemoryLedger::outside(size_t in_heap) const {
  constexpr auto kStaging = static_cast<size_t>(MemoryCategory::kTransportStaging);
  const std::lock_guard lock(mutex_);
  const size_t all = usage_.total_current - usage_.current[kStaging];
  return usage_.scratch + (all > in_heap ? all - in_heap : 0);  // a release may be under way
}

void MemoryLedger::set_limit(size_t bytes, std::function<std::string()> phase) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
  phase_ = std::move(phase);
}

void MemoryLedger::hold(size_t held, size_t bytes, std::string_view category,
                        std::string_view unit) {
  {
    const std::lock_guard lock(mutex_);
    if (limit_ == 0 || held <= limit_) {
      usage_.held_peak = std::max(usage_.held_peak, held);
      return;
    }
  }
  const std::string phase = phase_ ? phase_() : "";
  fail(
      "[allocate] {} bytes of {}{}{}: with them this rank would hold {} bytes, the limit is {} "
      "bytes\n{}",
      bytes, category, phase.empty() ? "" : ", in " + phase,
      unit.empty() ? "" : fmt::format(" of {}", unit), held, limit_, table());
}

void MemoryLedger::set_trace(Trace* trace) {
  const std::lock_guard lock(mutex_);
  trace_ = trace;
  for (size_t i = 0; i < kMemoryCategories; ++i) sample(static_cast<MemoryCategory>(i));
}

void MemoryLedger::sample(MemoryCategory category) {
  if (!trace_) return;
  trace_->sample(std::string(name_of(category)),
                 static_cast<int64_t>(usage_.current[static_cast<size_t>(category)]));
}

void MemoryLedger::reset_peak() {
  const std::lock_guard lock(mutex_);
  usage_.peak = usage_.current;
  usage_.at_peak = usage_.current;
  usage_.total_peak = usage_.total_current;
  usage_.predictable_peak = usage_.predictable_current;
}

MemoryUsage MemoryLedger::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

std::string MemoryLedger::table() const {
  const MemoryUsage u = usage();
  if (u.total_peak == 0) return "nothing was allocated before\n";
  const auto mib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string out = fmt::format("{:<22}{:>14}{:>14}\n", "memory (MiB)", "now", "peak");
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    if (u.peak[i] == 0) continue;
    out += fmt::format("{:<22}{:>14.2f}{:>14.2f}\n", name_of(static_cast<MemoryCategory>(i)),
                       mib(u.current[i]), mib(u.peak[i]));
  }
  return out + fmt::format("{:<22}{:>14.2f}{:>14.2f}\n", "total", mib(u.total_current),
                           mib(u.total_peak));
}

}  // namespace fsdp
