// Reads the rings of all ranks together: who is where, who waits for whom, where they part.
// Not here: recording (comm/collective_ring.h), files and signals (tools/launch/ring_dump.h).
#pragma once

#include <string>
#include <vector>

#include "comm/collective_ring.h"

namespace fsdp::comm {

// What one rank has to say; without rings when it could not be asked.
struct RankRings {
  int rank = 0;
  std::string place;       // "node3, process 4711"
  std::string silence;     // why there are no rings: "no answer within 2 s"; else empty
  int64_t now_ns = 0;      // trace_clock_ns() when the rings were read
  std::string phase = {};  // what its host is at: "step 12, backward"
  std::vector<RingSnapshot> rings = {};
};

// Whether there is: a collective of tensors was issued, or a rank waits for long. What fails
// before, while the ranks set up, says all in its error.
bool worth_explaining(const std::vector<RankRings>& ranks);

// Several lines, for a person.
std::string explain(const std::vector<RankRings>& ranks);

}  // namespace fsdp::comm
