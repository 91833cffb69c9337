// Keys of TrainingArguments that are read together: how long, how often, how it is sharded.
#pragma once

#include <string>
#include <vector>

#include "tools/guides/adopt/rules.h"

namespace fsdp::adopt {

// Whether `fsdp`, and a template's dist.mode beside it, turn FSDP on: else transformers reads
// nothing of fsdp_config.
bool uses_fsdp(const Adoption& adoption);
// A number of steps. A share of all steps, which is a number below 1 there, is refused.
Take take_steps_to(const std::string& key);
// What TRL's SFTConfig adds to TrainingArguments: sft_config.cpp.
std::vector<Rule> sft_rules();
void note_on_completions(Adoption& adoption);
// After every key by itself. Sets the defaults of TrainingArguments that are not ours.
void take_arguments_together(Adoption& adoption);

}  // namespace fsdp::adopt
