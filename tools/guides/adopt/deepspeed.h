// What accelerate's file says of ZeRO in other words, and DeepSpeed's defaults.
#pragma once

#include "tools/guides/adopt/adoption.h"

namespace fsdp::adopt {

void take_zero_stage(const Given& given, Adoption& adoption);
// A device that parameters or optimizer state are moved to.
void take_offload(const Given& given, Adoption& adoption);
// DeepSpeed's defaults under the dtype and the strategy that are set: the dtype of gradient sums,
// the loss scale.
void set_deepspeed_precision(Adoption& adoption);

}  // namespace fsdp::adopt
