// What a rank's host thread is at, as nested ranges of a profiler: the phase of the run, in it the
// unit or module, in it the operation. Not here: the timeline that a run writes itself
// (core/trace.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::cuda {

// One host thread calls it, as it enqueues. Ranges end in pairs with their begin, whatever is
// thrown between: a phase that ends takes the unit in it along, and the unit around it goes on.
class ProfilerRanges {
 public:
  ProfilerRanges() = default;
  ~ProfilerRanges() { leave_unit(); }
  ProfilerRanges(const ProfilerRanges&) = delete;
  ProfilerRanges& operator=(const ProfilerRanges&) = delete;

  void begin_phase(const std::string& name);
  void end_phase();
  void enter_unit(const std::string& name);  // instead of the unit before; "": none

 private:
  void leave_unit();

  std::vector<std::string> units_ = {""};  // whose range is open in each phase; "": none is
};

// An operation while alive.
class OperationRange {
 public:
  explicit OperationRange(std::string_view name);  // a literal
  ~OperationRange();
  OperationRange(const OperationRange&) = delete;
  OperationRange& operator=(const OperationRange&) = delete;
};

}  // namespace fsdp::cuda
