// What a rank may take (runtime.memory_limit), and the end of a run that needs more: before
// anything large is asked for, with changes that make it fit.
// Not here: what there is (tools/launch/host_limits.h), what a run needs (predicted_run.h),
// which changes there are (memory_changes.h).
#pragma once

#include <optional>
#include <string>

#include "tools/launch/host_limits.h"
#include "tools/launch/launch.h"
#include "tools/predict/memory_changes.h"

namespace fsdp::tools {

struct MemoryShare {
  AvailableMemory available;
  int ranks = 1;        // that share it
  size_t overhead = 0;  // of a rank: what it takes besides what is predicted
  std::string overhead_of = "the program itself";
};
// What NCCL's communicators take of a GPU: the channels for gathers and reductions. Assumed until
// they are made; a run measures it then (tools/launch/gpu_memory.h).
constexpr size_t kNcclBytes = size_t{800} << 20;
// What a rank of this process takes besides: the program, its libraries, stacks, generated code.
size_t overhead_of_rank(const AvailableMemory& available, int ranks_of_process);

struct MemoryLimit {
  size_t bytes = 0;  // of a rank
  std::string source;
};
// `wanted`: runtime.memory_limit. The memory of the machine limits the result too.
MemoryLimit memory_limit(const std::string& wanted, const MemoryShare& share);

// Empty when the run fits. Else the message: what the run needs, the limit, the three cheapest
// changes with which it fits. `host`: of a GPU's host, for what is offloaded.
std::string refusal(const RunPlan& plan, const MemoryLimit& limit,
                    const std::optional<MemoryLimit>& host = std::nullopt);

// ---- What each rank of a job may take, which its ranks find out together: the least of all, since
// they run the same. Not here: what a run needs (predicted_run.h, model_use.h).

// `wanted`: runtime.memory_limit. Before a rank takes anything large: [Note: what is left] in
// tools/launch/host_limits.h. Collective.
MemoryLimit limit_of_host(const RankContext& rank, const std::string& wanted);
// Of the GPU of each rank, before a session is there. Collective.
MemoryLimit limit_of_gpu(const RankContext& rank, const std::string& wanted);
// Of what computes. Collective.
MemoryLimit limit_of_device(const RankContext& rank, const std::string& wanted);

}  // namespace fsdp::tools
