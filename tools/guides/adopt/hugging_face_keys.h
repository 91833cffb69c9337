// Keys of TrainingArguments that are read together: how long, how often, how it is sharded.
#pragma once

#include <string>
#include <vector>

#include "tools/guides/adopt/rules.h"

namespace fsdp::adopt {

const Json& hugging_face_json();  // tables/hugging_face.json

// Whether `fsdp`, and a template's dist.mode beside it, turn FSDP on: else transformers reads
// nothing of fsdp_config.
bool uses_fsdp(const Adoption& adoption);
// Whether `fsdp` has the form of transformers 5, which is true alone: it has its policy and its
// version in fsdp_config, with other defaults. Until 4 true alone was full_shard without units.
bool is_of_five(const Adoption& adoption, const Given& fsdp);
// 2 where it has this form, unless fsdp_config says 1.
int version_of_fsdp(const Adoption& adoption);
// The keys of TrainingArguments, and of them those of lr_scheduler_kwargs and fsdp_config.
std::vector<Rule> trainer_rules();
std::vector<Rule> schedule_rules();
std::vector<Rule> sharding_rules();
// Keys that are read together. max_steps counts more than num_train_epochs: returns it, or 0.
int64_t take_length(Adoption& adoption);
void take_schedule(Adoption& adoption);
// Steps, or a share of all of them, where these are known.
void take_steps(const std::string& key, const Given& given, Adoption& adoption);
void take_fsdp(Adoption& adoption, const Given& given, int version);
void warn_of_deepspeed(Adoption& adoption);  // whose file is one of its own
// After every key by itself. Sets the defaults of TrainingArguments that are not ours.
void take_arguments_together(Adoption& adoption);

}  // namespace fsdp::adopt
