// Functions from facts to checks: the faults of a job's hosts, each with the line that mends it. A
// check is a fault only where one line mends it; other findings are values. Not here: the facts
// (facts.h), a folder that hosts share (shared_folder.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tools/doctor/check.h"
#include "tools/doctor/facts.h"

namespace fsdp::tools::doctor {

// ---- one host ----

// The job that the host has to bear.
struct JobShape {
  int ranks = 1;  // of all hosts
  int on_host = 1;
  int gpus = 0;  // of this host

  bool on_several_hosts() const { return ranks > on_host; }
};

std::vector<Check> host_checks(const HostFacts& facts, const JobShape& job);

// Where a host has no GPU, what serves GPUs is not looked for.
std::vector<Check> gpu_checks(const GpuFacts& facts);
// `launched`: by mpirun or srun, which therefore have what they need.
std::vector<Check> mpi_checks(const MpiFacts& facts, bool launched);

// One check: the worst that is said of any GPU. Fields that a driver does not know, "N/A",
// "[Not Supported]" say nothing.
Check health_check(const SmiOutput& said);

// `name`: of the check. `elsewhere`: how the job writes to another place.
Check space_check(const std::string& name, const FreeSpace& space, const std::string& elsewhere);

// The line that mends what the system says of a folder: an errno, or 0 for what does not answer.
std::string folder_fix(int code, const std::filesystem::path& folder);

// ---- all hosts of a job: what must be alike, clocks, numbers that somebody expects ----

// A check whose value is another than on most hosts gets worse, with the line that mends it. Of
// equally many, those of the first host are right. `program`: its path.
void compare_hosts(std::vector<HostReport>& hosts, const std::string& program);

// How far the clocks of two hosts are apart, from messages that their ranks exchange. No answer
// comes before all have asked, so each exchange bounds the difference from both sides; the
// uncertainty is half of the shortest round trip.
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
// Both lists are of the same exchanges, at least one.
ClockOffset clock_offset(const std::vector<Stamps>& own, const std::vector<Stamps>& other);
// Checks a host's clock against the clock of the host `other`.
Check clock_check(const ClockOffset& offset, const std::string& other);

// --expect gpus=8,nic_gbit=100: what must exist. An absence, or a lower number, then fails.
struct Expectation {
  std::string name;
  double least = 0;
};
// Error that lists the known names, for an unknown one; Error for what is no number above 0.
std::vector<Expectation> parse_expectations(const std::string& text);
// "gpus, ranks, ..."
std::string expectation_names();

// A check whose number is lower fails, with the line that mends it. A check that is well loses its
// line.
void demand(const std::vector<Expectation>& expected, std::vector<HostReport>& hosts);

}  // namespace fsdp::tools::doctor
