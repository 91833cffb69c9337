// Whether a file system has room for the checkpoints of a run, asked before the first step. Next:
// run_checkpoints.h, which writes them. Not here: room for the model
// (tools/report/run_directory.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tools/config/config.h"
#include "tools/engine/session.h"

namespace fsdp::tools {

// What the shards of one checkpoint hold, over all ranks. Collective.
uint64_t checkpoint_bytes(Session& session);

// How many more checkpoints must find room at least. A new one is written before an old one goes.
// With keep: 0 the number of them may be large, and who asks for that may remove some: two count.
// `steps`: that the run has left. `there`: how many are in the folder.
int64_t checkpoints_to_come(const config::CheckpointSection& config, int64_t steps, int64_t there);

// "", or what is missing for `count` checkpoints, or none. `beside`: bytes that the run needs in
// the same place for something else.
std::string missing_room(const std::filesystem::path& folder, uint64_t bytes_of_one, int64_t count,
                         uint64_t beside);

}  // namespace fsdp::tools
