// What accelerate's file and DeepSpeed's own say of ZeRO.
#pragma once

#include "tools/adopt/adoption.h"

namespace fsdp::adopt {

void take_zero_stage(const Given& given, Adoption& adoption);
// A device that parameters or optimizer state are moved to.
void take_offload(const Given& given, Adoption& adoption);

}  // namespace fsdp::adopt
