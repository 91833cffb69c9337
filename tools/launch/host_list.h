// The hosts of a Slurm job, and the hosts on which no rank runs. Slurm names hosts in short:
// "a[01-03,07],login" is a01, a02, a03, a07, login (its man pages: sinfo, "hostlist").
// Not here: how ranks find each other (comm/mpi_transport.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools {

// In the order of the list. Several brackets in a name are every combination. Error when the list
// is malformed or names more than a million hosts.
std::vector<std::string> expand_host_list(std::string_view list);

// "" when a rank runs on each host of the job, or there is no job; else a sentence that names the
// hosts without one, or says what is wrong with the job's list. `hosts`: of the ranks. Names are
// compared up to their first point. `getenv`: reads a variable, null: it is not set.
std::string idle_hosts_note(const std::vector<std::string>& hosts,
                            const std::function<const char*(const char* name)>& getenv);

}  // namespace fsdp::tools
