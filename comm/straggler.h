// Which rank the others waited for, in which phase, for how long: from what every rank noted on its
// way into its collectives and out of them.
//
// [Note: who is late] A collective ends at the same moment for all, so whoever comes last waits the
// least. No two clocks are compared. In one step and phase a rank is late by the time that even the
// one who waited least of the others waited longer than it. Communicators run side by side: of a
// rank with several the longest counts. Ranks overtake each other in a healthy run too. A rank is
// named for the median over steps, if that is far outside what chance gives, and worth a word.
// A host is late as a rank is: by the time that all of its ranks waited less than any other. Its
// own ranks wait for each other, so that none of them need be late.
#pragma once

#include <string>
#include <vector>

#include "comm/ring_report.h"

namespace fsdp::comm {

struct Straggler {
  int rank = 0;
  std::string phase;   // "backward"
  double late_s = 0;   // in a step, the median
  int64_t steps = 0;   // that were looked at
  double last_in = 0;  // the part of them in which it was the last
};

// The longest first; empty: no rank is regularly late. `host_of`: by rank, the lowest rank on its
// host, which then stands for the host; empty: each rank for itself.
std::vector<Straggler> find_stragglers(const std::vector<RankRings>& ranks,
                                       const std::vector<int>& host_of = {});

// "rank 1 was waited for in backward: 50.2 ms a step (median of 20, the last in 100 %)". `who`: in
// place of "rank 1".
std::string describe(const Straggler& straggler, const std::string& who = "");

}  // namespace fsdp::comm
