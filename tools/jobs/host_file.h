// The hosts of a job and how many ranks each gets, as people have them: a list, or a file of Open
// MPI, MPICH, Intel MPI, DeepSpeed, PBS, LSF, Grid Engine or `scontrol show hostnames`.
// Read next: job.h.
#pragma once

#include <string>
#include <vector>

namespace fsdp::tools {

struct HostSlots {
  std::string host;
  int ranks = 1;
  bool operator==(const HostSlots&) const = default;
};

// "a:4,b[1-3]:4,c" (of c: one). Error that names the part which is wrong.
std::vector<HostSlots> parse_hosts(const std::string& text);

// A host a line: "a", "a:4", "a slots=4", "a 4"; "#" begins a comment. A name that comes again has
// more ranks. Error with `place` and the line.
std::vector<HostSlots> parse_host_file(const std::string& text, const std::string& place);

// What --hosts says: "@FILE", or a name that is there or ends with .txt or .hosts, else a list.
std::vector<HostSlots> read_hosts(const std::string& given);

}  // namespace fsdp::tools
