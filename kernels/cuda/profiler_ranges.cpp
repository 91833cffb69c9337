// Pushes and pops in the order that nesting asks for.
#include "kernels/cuda/profiler_ranges.h"

#include "kernels/cuda/nvtx.h"

namespace fsdp::cuda {

void ProfilerRanges::begin_phase(const std::string& name) {
  nvtx::push(name.c_str());
  units_.emplace_back();
}

void ProfilerRanges::end_phase() {
  leave_unit();
  units_.pop_back();
  nvtx::pop();
}

void ProfilerRanges::enter_unit(const std::string& name) {
  if (name == units_.back()) return;
  leave_unit();
  if (name.empty()) return;
  nvtx::push(name.c_str());
  units_.back() = name;
}

void ProfilerRanges::leave_unit() {
  if (units_.back().empty()) return;
  nvtx::pop();
  units_.back().clear();
}

OperationRange::OperationRange(std::string_view name) { nvtx::push(name.data()); }
OperationRange::~OperationRange() { nvtx::pop(); }

}  // namespace fsdp::cuda
