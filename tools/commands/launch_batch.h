// fsdp launch pbs, fsdp launch lsf: launch_batch.cpp.
#pragma once

#include "tools/commands/commands.h"

namespace fsdp::tools {

void add_launch_batch(const Command& group, ChosenCommand& chosen);

}  // namespace fsdp::tools
