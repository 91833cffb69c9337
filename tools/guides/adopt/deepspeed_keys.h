// Keys of DeepSpeed that are read together, and what accelerate's file says of ZeRO in other words.
#pragma once

#include <set>
#include <string>

#include "tools/guides/adopt/adoption.h"

namespace fsdp::adopt {

void take_zero_stage(const Given& given, Adoption& adoption);
// A device that parameters or optimizer state are moved to.
void take_offload(const Given& given, Adoption& adoption);
// DeepSpeed's defaults under the dtype and the strategy that are set: the dtype of gradient sums,
// the loss scale.
void set_deepspeed_precision(Adoption& adoption);
// Batch, precision, optimizer, schedule, and defaults that are not ours. `automatic`: keys whose
// value is "auto", which TrainingArguments fill in.
void take_deepspeed_together(Adoption& adoption, const std::set<std::string>& automatic);

}  // namespace fsdp::adopt
