// Bytes in use by category, counted in program order: when the host enqueues an allocation or a
// release, not when a worker runs it. One ledger per rank, the same rules on every backend, so that
// peaks can be asserted as formulas. Sizes are rounded up to kAllocationGranularity.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

class Trace;

constexpr size_t kAllocationGranularity = 512;  // bytes

inline size_t rounded_bytes(size_t bytes) {
  return (bytes + kAllocationGranularity - 1) / kAllocationGranularity * kAllocationGranularity;
}

enum class MemoryCategory : uint8_t {
  kParameterShard,
  kUnshardedParameter,
  kGradient,
  kOptimizerState,
  kActivation,
  kKeyValueCache,
  kCommunication,
  kTransportStaging,
  kWorkspace,
};
constexpr size_t kMemoryCategories = 9;
std::string_view name_of(MemoryCategory category);  // "parameter shard", ...

struct MemoryUsage {
  std::array<size_t, kMemoryCategories> current{};  // bytes
  std::array<size_t, kMemoryCategories> peak{};     // each category's own peak, bytes
  std::array<size_t, kMemoryCategories> at_peak{};  // by category at the moment of the total peak
  size_t total_current = 0;
  size_t total_peak = 0;
  // Of the categories that follow from the configuration alone, which is what a prediction can be
  // compared with.
  size_t predictable_current = 0;
  size_t predictable_peak = 0;
  // Of the CPU's kernels, for their own work: only grows. Not part of the sums above.
  size_t scratch = 0;
  // What the backend needs of the machine at the most: the predictable categories with the gaps
  // between their blocks, and scratch.
  size_t held_peak = 0;
};

class MemoryLedger {
 public:
  MemoryLedger();
  void add(MemoryCategory category, size_t bytes);       // bytes before rounding
  void subtract(MemoryCategory category, size_t bytes);  // the same number as at add
  // Transport staging is not predictable, and a backend's other categories that it says.
  void set_unpredictable(MemoryCategory category);  // before anything is counted
  bool predictable(MemoryCategory category) const {
    return predictable_[static_cast<size_t>(category)];
  }
  void add_scratch(size_t bytes);  // a multiple of the granularity
  // What is in use outside a heap in which `in_heap` bytes are: the rest of the predictable
  // categories, and scratch.
  size_t outside(size_t in_heap) const;
  // At most as much may be held; 0: no limit. `phase`: what the run does, for the message.
  void set_limit(size_t bytes, std::function<std::string()> phase);
  // Before every allocation, of `bytes`: `held` bytes will be held with it. Error when that is
  // above the limit. `unit`: for which the host asks.
  void hold(size_t held, size_t bytes, std::string_view category, std::string_view unit);
  void reset_peak();  // peaks := current, for instance after warm-up
  MemoryUsage usage() const;
  std::string table() const;  // for out-of-memory errors and reports, in MiB
  // Every change from now on becomes a sample of the category's curve; null: off. Not owned.
  void set_trace(Trace* trace);

 private:
  void sample(MemoryCategory category);  // with the mutex held

  mutable std::mutex mutex_;
  MemoryUsage usage_;
  std::array<bool, kMemoryCategories> predictable_;
  Trace* trace_ = nullptr;
  size_t limit_ = 0;
  std::function<std::string()> phase_;
};

}  // namespace fsdp
