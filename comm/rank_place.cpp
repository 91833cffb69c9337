// See [Note: where a rank is].
#include "comm/rank_place.h"

#include <string_view>

namespace fsdp::comm {
namespace {

// Of "step 12, backward": "step".
std::string_view kind_of(std::string_view phase) {
  return phase.substr(0, phase.find_first_of(" ,"));
}

const CallRecord* began_last(const std::vector<RingSnapshot>& rings) {
  const CallRecord* last = nullptr;
  for (const RingSnapshot& ring : rings) {
    for (const CallRecord& call : ring.records) {
      const bool says = call.started_ns > 0 && !call.unit.empty() && !call.phase.whole.empty();
      if (says && (!last || call.started_ns > last->started_ns)) last = &call;
    }
  }
  return last;
}

// The group whose call has been under way the longest; "": there is none.
std::string_view waits_longest_in(const std::vector<RingSnapshot>& rings) {
  std::string_view name;
  int64_t since = 0;
  for (const RingSnapshot& ring : rings) {
    for (const CallRecord& call : ring.records) {
      if (call.state != CallState::kStarted || (!name.empty() && call.started_ns >= since))
        continue;
      name = ring.name;
      since = call.started_ns;
    }
  }
  return name;
}

}  // namespace

std::string place_of(const HostPhase& host, const std::vector<RingSnapshot>& rings) {
  if (waits_longest_in(rings) == kCheckpointGroup) return kCheckpointGroup;
  const CallRecord* call = began_last(rings);
  if (!call) return host.whole;
  if (!host.whole.empty() && kind_of(host.whole) != kind_of(call->phase.whole)) return host.whole;
  // A phase of all units is its own scope.
  const bool of_unit = call->unit != call->phase.innermost;
  return call->phase.whole + (of_unit ? ", unit " + call->unit : "");
}

}  // namespace fsdp::comm
