// How far the clocks of two hosts are apart, from messages that their ranks exchange. No answer
// comes before all have asked, so each exchange bounds the difference from both sides; the
// uncertainty is half of the shortest round trip. Not here: what is wrong with that (job_checks.h).
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace fsdp::tools::doctor {

struct Stamps {  // of one exchange, Unix time in seconds on this host's clock
  double before = 0;
  double after = 0;
};
// By rank. Collective.
std::vector<std::vector<Stamps>> stamp_exchanges(comm::Communicator& world, int exchanges);

struct ClockOffset {
  double seconds = 0;      // of a clock against the other: above 0, it is ahead
  double uncertainty = 0;  // seconds, to both sides
};
// Of the same exchanges; at least one.
ClockOffset clock_offset(const std::vector<Stamps>& own, const std::vector<Stamps>& other);

}  // namespace fsdp::tools::doctor
