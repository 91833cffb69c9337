// Pushes and pops in the order that nesting asks for.
#include "kernels/cuda/profiler_ranges.h"

#include "kernels/cuda/nvtx.h"

namespace fsdp::cuda {

void ProfilerRanges::begin_phase(const std::string& name) {
  leave_unit();
  nvtx::push(name.c_str());
}

void ProfilerRanges::end_phase() {
  leave_unit();
  nvtx::pop();
}

void ProfilerRanges::enter_unit(const std::string& name) {
  if (name == unit_) return;
  leave_unit();
  if (name.empty()) return;
  nvtx::push(name.c_str());
  unit_ = name;
}

void ProfilerRanges::leave_unit() {
  if (unit_.empty()) return;
  nvtx::pop();
  unit_.clear();
}

OperationRange::OperationRange(std::string_view name) { nvtx::push(std::string(name).c_str()); }
OperationRange::~OperationRange() { nvtx::pop(); }

}  // namespace fsdp::cuda
