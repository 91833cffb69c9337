// Contract: tools/plan/step_shares.h.
#include "tools/plan/step_shares.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

namespace fsdp::tools {
namespace {

struct Busy {
  double begin_s, end_s;
  double StepShares::*waited;  // what a wait for it counts as
};

bool is_collective(const StepCall& call) {
  return call.name == "all_gather" || call.name == "reduce_scatter" || call.name == "all_reduce" ||
         call.name == "broadcast";
}

// Of a call that is no computation of the compute stream: with what is done for collectives on
// their streams (casts, copies), and for transfers on theirs.
double StepShares::*waited_for(const StepCall& call) {
  if (call.name == "all_gather") return &StepShares::gather_s;
  if (is_collective(call)) return &StepShares::reduce_s;
  if (call.stream == "gather") return &StepShares::gather_s;
  if (call.stream == "reduce" || call.stream == "replicas") return &StepShares::reduce_s;
  const bool on_host = call.stream == "host";  // which updates what is offloaded
  return on_host ? &StepShares::host_s : &StepShares::transfer_s;
}

// From `begin_s` to `end_s` nothing computes, so many times. `others` by their beginning; those
// that ended before are taken off, because waits come in their order, too.
void add_wait(double begin_s, double end_s, std::deque<Busy>& others, double times,
              StepShares& shares) {
  if (end_s <= begin_s) return;
  while (!others.empty() && others.front().end_s <= begin_s) others.pop_front();
  double at_s = begin_s;
  for (const Busy& other : others) {
    if (other.begin_s >= end_s) break;
    if (other.end_s <= at_s) continue;
    const double from_s = std::max(at_s, other.begin_s), to_s = std::min(end_s, other.end_s);
    shares.host_s += times * (from_s - at_s);
    shares.*other.waited += times * (to_s - from_s);
    at_s = to_s;
  }
  shares.host_s += times * (end_s - at_s);
}

// What the calls of one micro-step are short of when they stand for several: the seconds between
// their last moment and the first of what comes then, in which the others of the micro-steps are.
double left_out_s(const std::vector<StepCall>& calls) {
  const auto several = [](const StepCall& call) { return call.times > 1; };
  const auto first = std::find_if(calls.begin(), calls.end(), several);
  const auto next = std::find_if_not(first, calls.end(), several);
  if (first == calls.end() || next == calls.end()) return 0;
  const auto times = static_cast<double>(first->times);
  return 1e-3 * (next->begin_ms - first->begin_ms) * (times - 1) / times;
}

}  // namespace

std::string StepShares::bound() const {
  const std::array all = {std::pair{products_s, "compute"},  std::pair{passes_s, "memory"},
                          std::pair{gather_s, "gather"},     std::pair{reduce_s, "reduce"},
                          std::pair{transfer_s, "transfer"}, std::pair{host_s, "host"}};
  return std::max_element(all.begin(), all.end())->second;
}

StepShares step_shares(const std::vector<StepCall>& calls, double step_ms) {
  StepShares shares;
  std::deque<Busy> others;
  std::vector<const StepCall*> computing;  // of one stream: one after the other
  for (const StepCall& call : calls) {
    const double begin_s = 1e-3 * call.begin_ms, end_s = 1e-3 * call.end_ms;
    if (end_s <= begin_s) continue;
    if (!call.computes || is_collective(call)) {
      others.push_back({begin_s, end_s, waited_for(call)});
      continue;
    }
    const bool product = call.product || call.name.starts_with("attention_");
    (product ? shares.products_s : shares.passes_s) +=
        (end_s - begin_s) * static_cast<double>(call.times);
    computing.push_back(&call);
  }
  std::sort(others.begin(), others.end(),
            [](const Busy& a, const Busy& b) { return a.begin_s < b.begin_s; });
  double at_s = 0;
  int64_t times = 1;  // of the call before
  for (const StepCall* const call : computing) {
    if (times > 1 && call->times == 1) at_s += left_out_s(calls);
    times = call->times;
    add_wait(at_s, 1e-3 * call->begin_ms, others, static_cast<double>(times), shares);
    at_s = 1e-3 * call->end_ms;
  }
  add_wait(at_s, 1e-3 * step_ms, others, 1, shares);
  return shares;
}

}  // namespace fsdp::tools
