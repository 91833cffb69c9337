// How many threads a rank has: what the user says, or else its share of the cores and of the CPU
// time that this process may use.
// Not here: CPU time (host_limits.h), variables that would bind threads (openmp_variables.h).
#pragma once

#include <string>
#include <vector>

#include "tools/launch/host_limits.h"

namespace fsdp::tools {

// The numbers of the cores that this thread may use, and so all threads that it starts, ascending;
// {0}: the kernel does not say.
std::vector<int> own_cores();

struct CoreSharing {
  int usable = 1;  // cores this process may use
  int of_machine = 1;
  int ranks = 1;  // that use the same cores
  int ranks_on_host = 1;
  bool bound_by_launcher = false;
  CpuQuota quota{};
  int ranks_of_quota = 1;  // that compute on it
};
struct ThreadChoice {
  int threads = 1;      // per rank
  std::string warning;  // "" when all is well
  std::string note{};   // "" when there is nothing to say
};
// `omp_num_threads`: the variable's value, null when it is not set. What OpenMP cannot read gets a
// warning and its sensible meaning.
ThreadChoice choose_threads(int requested,  // 0: the variable's, or the cores are shared out
                            const CoreSharing& cores, const char* omp_num_threads = nullptr);
// Of a rank, where so many ranks of this machine compute on its CPU. `requested`: as above.
int threads_here(int requested, int ranks);

}  // namespace fsdp::tools
