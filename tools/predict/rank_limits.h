// What each rank of a job may take, which its ranks find out together: the least of all, since they
// run the same. Not here: how a share of the memory becomes a limit (memory_limit.h), what a run
// needs (predicted_run.h, model_use.h).
#pragma once

#include <string>

#include "tools/launch/launch.h"
#include "tools/predict/memory_limit.h"

namespace fsdp::tools {

// `wanted`: runtime.memory_limit. Before a rank takes anything large: [Note: what is left] in
// tools/launch/host_limits.h. Collective.
MemoryLimit limit_of_host(const RankContext& rank, const std::string& wanted);
// Of the GPU of each rank, before a session is there. Collective.
MemoryLimit limit_of_gpu(const RankContext& rank, const std::string& wanted);
// Of what computes. Collective.
MemoryLimit limit_of_device(const RankContext& rank, const std::string& wanted);

}  // namespace fsdp::tools
