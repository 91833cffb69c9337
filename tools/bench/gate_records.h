// What collectives reached while the cluster was well, and whether they still do: the file of
// `fsdp bench comm --gate`. It holds a record for each collective, size and place; a run is held to
// the records of its own place. Not here: measuring (comm_bench.h), which pair of ranks is slow
// (comm_pairs.h).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/comm_gate.h"

namespace fsdp::tools {

// Between which ranks collectives run.
struct GatePlace {
  std::string transport, memory;  // memory: of which backend
  std::string device;             // the processor or the GPU; several kinds: all of them
  int64_t ranks = 0, hosts = 0, most_on_a_host = 0;
  auto operator<=>(const GatePlace&) const = default;
};

// What two measurements have to share to be comparable. Texts as bench comm prints them.
struct GateCase {
  GatePlace place;
  std::string collective, op, dtype, buffer;
  int64_t bytes = 0;
  auto operator<=>(const GateCase&) const = default;
};
GateCase gate_case(const CommCase& what, const GatePlace& place);

// Of a call on the slowest rank. What is recorded is of the median round.
struct GateRecord {
  double busbw_gb_per_s = 0;
  double us = 0;
};
using GateRecords = std::map<GateCase, GateRecord>;

// A case a line. Error for text that is anything else; `source` names it.
GateRecords parse_gate_records(std::string_view text, const std::string& source);
std::string gate_text(const GateRecords& records);
void set_records(GateRecords& records, const GatePlace& place,
                 const std::vector<CommResult>& results);

// kNothingValid unless there is a record of each case at this place. `source`: the file.
GateVerdict check_recorded(const GateRecords& records, const GatePlace& place,
                           const std::vector<CommCase>& cases, const std::string& source);

// Calls of fewer bytes are held to the time that they take, others to their bandwidth: also those
// of 1 MiB, of which whole slots may be less. A time may be longer by this much more: a small call
// is no longer than what may interrupt it.
constexpr int64_t kBandwidthBytes = 1'000'000;
constexpr double kInterruptionUs = 5;

struct HeldCase {
  CommCase what;
  GateRecord record;
  // Of the least round of all tries: other work only makes calls longer, a slow link all of them.
  GateRecord best;
  int64_t wrong = 0;
  int tries = 0;
  std::string shortfall;  // what was expected and what was measured; "": it is enough
};
// Results of a place in whose records check_recorded() finds each case. `again` measures a case
// once more, after a pause: what disturbed it may last. Collective where `again` is.
std::vector<HeldCase> hold_to_records(const std::vector<CommResult>& results,
                                      const GateRecords& records, const GatePlace& place,
                                      double share, std::chrono::milliseconds pause,
                                      const std::function<CommResult(const CommCase&)>& again);
// The one that falls short most, of bandwidth where one of bandwidth does; null: all are enough.
const HeldCase* worst_of(const std::vector<HeldCase>& held);
// kNothingValid for wrong data of a try; kTooSlow with the worst case when one falls short.
GateVerdict check_held(const std::vector<HeldCase>& held, const std::string& source);

}  // namespace fsdp::tools
