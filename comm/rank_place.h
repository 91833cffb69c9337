// Where a rank is, in a few words for the report of an error. Not here: recording
// (comm/collective_ring.h), what the rings of several ranks mean together (comm/ring_report.h).
//
// [Note: where a rank is] The host of a rank runs ahead of its device, by up to a step, and between
// two steps it is in no phase. So the call that the device began last says where the rank is: the
// phase in which it was issued, and its unit. Where the host is at something else by now (an
// evaluation, a checkpoint), the host says it. A thread that writes a checkpoint beside the steps
// has a group of its own, and its messages have no unit: while one of them has been under way
// longer than all other calls, the rank waits there.
#pragma once

#include <string>
#include <vector>

#include "comm/collective_ring.h"

namespace fsdp::comm {

// Name of the group of the ranks' threads that write a checkpoint.
inline constexpr const char* kCheckpointGroup = "checkpoint";

// "step 12, backward, unit blocks.1". Calls of no one unit (the norm of all gradients) are of their
// phase alone: "step 12, optimizer". "": the rank has said nothing yet.
std::string place_of(const HostPhase& host, const std::vector<RingSnapshot>& rings);

}  // namespace fsdp::comm
