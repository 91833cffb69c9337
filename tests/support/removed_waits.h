// Training in which waits of one stream for another are left out, to see whether results show it.
// What is left out where, and which waits nobody would miss, is said in tests/comm/fsdp:
// stream_order_test.cpp and removed_waits_test.cpp.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/sharded_run.h"

namespace fsdp::test {

using Edge = std::pair<std::string, std::string>;  // the stream that waits, the recorded one

inline const Edge kGathered = {"compute", "gather"};      // parameters before their use
inline const Edge kFree = {"gather", "compute"};          // a buffer's use, the update
inline const Edge kComputed = {"reduce", "compute"};      // gradients before their reduction
inline const Edge kReduced = {"compute", "reduce"};       // before optimizer and next tenant
inline const Edge kScattered = {"replicas", "reduce"};    // reduce-scatter before all-reduce
inline const Edge kReplicated = {"compute", "replicas"};  // before optimizer and next tenant
inline const Edge kReturned = {"reduce", "replicas"};     // before the buffer's next reduction

// With offload; "host" is the stream that updates.
inline const Edge kSent = {"host", "to_host"};         // gradients before the norm
inline const Edge kUpdated = {"from_host", "host"};    // an update before its copy
inline const Edge kFetched = {"gather", "from_host"};  // parameters before their gather
inline const Edge kToHost = {"host", "compute"};       // flags, coefficient and skip
inline const Edge kFromHost = {"compute", "host"};     // the norm's sum

// Of inputs that wait on the host (core/host_inputs.h).
inline const Edge kInputWritten = {"inputs_out", "compute"};  // before its copy
inline const Edge kInputBlock = {"inputs_out", "inputs"};     // the host's memory is free
inline const Edge kInputFree = {"inputs_in", "compute"};      // the device's memory is free
inline const Edge kInputGone = {"compute", "inputs_out"};     // before its memory is given back
inline const Edge kInputBack = {"compute", "inputs_in"};      // before its use
inline const Edge kBlockSent = {"inputs", "inputs_out"};      // before the host's is given back
inline const Edge kBlockFetched = {"inputs", "inputs_in"};

// ThreadSanitizer sees a missing edge itself, whatever comes out (stream_order_test.cpp).
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

struct OrderSetting {
  std::string what;
  int ranks;
  comm::FsdpOptions options;
  std::set<Edge> edges;  // of a step
  // Edges all of whose waits are redundant: removed_waits_test.cpp.
  std::set<Edge> in_vain = {};
  // Edges that ThreadSanitizer does not report in one step; results show that they are needed.
  std::set<Edge> unreported = {};
  SubjectFactory subject = causal_lm(small_gpt2());
  comm::WrapPolicy wrap = nullptr;
  int forwards = 1;
};
std::vector<OrderSetting> order_settings();
// Two steps. A unit that gives its parameters back leaves zeros in the buffer.
RunSpec spec_of(const OrderSetting& setting);

// Which waits of the second step are left out, on every rank.
struct Removal {
  Edge edge;
  std::set<int> numbers = {};  // their numbers within the step, from 0; none: all
};
// Streams are slowed down, so that what the removed waits wait for comes too late: twice as much as
// in the attempt before.
RunResult train_without(const RunSpec& spec, const Removal& removal, int attempt);
// Whether any of these attempts shows that the waits are missing: by its results or, in a build for
// AddressSanitizer, by a report.
bool noticed(const RunSpec& spec, const Removal& removal, const RunResult& expected, int attempts,
             int first = 0);
constexpr int kAttemptsOfOne = 9;  // that slow down the recorded stream alone
constexpr int kAttempts = 13;

// A wait of the second step, by what it protects: the work of the recorded stream up to one place
// in the step, from what the waiting stream is given at another. A place is a phase, and the unit
// for which the host issues: "forward blocks.1", "backward 2 root" in the second micro-step. After
// the last unit of a phase it is "backward end", for no unit "optimizer", and what the first step
// has recorded is at "last backward root".
struct Wait {
  Edge edge;
  std::string at;     // where the host is told to wait
  std::string since;  // where the event was recorded; "... (2)": the second wait with these names
  auto operator<=>(const Wait&) const = default;
};
// In order of issue. A stream that waits for itself waits for nothing.
std::vector<Wait> waits_of_a_step(const RunSpec& spec);

}  // namespace fsdp::test
