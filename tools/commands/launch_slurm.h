// fsdp launch slurm: a part of `fsdp launch`.
#pragma once

#include "tools/commands/commands.h"

namespace fsdp::tools {

void add_launch_slurm(const Command& group, ChosenCommand& chosen);

}  // namespace fsdp::tools
