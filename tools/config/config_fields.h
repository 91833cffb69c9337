// The sections of the list of options, for the files of the list (*_fields.cpp) and its walk
// (options.cpp). In the list a key stands with its member, its help and an OptionField:
//   v.section(key, help, struct, all)     visits the struct's own fields
//   v.field(key, member, help, {...})     values, ranges, flags, needs: option_field.h
//   v.list(key, help, vector of structs)  each with the struct's own fields
// `all`: the configuration, for needs in other sections.
// Not here: defaults (config.h).
#pragma once

#include "tools/config/config_values.h"
#include "tools/config/options.h"

namespace fsdp::config {

using tools::from;
using tools::from_to;
using tools::Keeps;
using tools::kPositive;
using tools::kSeed;
using tools::kShare;
using tools::Range;
using tools::size_from;

void visit(Visitor& v, ModelSection& c, const TrainConfig& all);
void visit(Visitor& v, LoraSection& c, const TrainConfig& all);
void visit(Visitor& v, DataSection& c, const TrainConfig& all);
void visit(Visitor& v, TrainSection& c, const TrainConfig& all);
void visit(Visitor& v, CheckpointSection& c, const TrainConfig& all);
void visit(Visitor& v, FsdpSection& c, const TrainConfig& all);
void visit(Visitor& v, RuntimeSection& c, const TrainConfig& all);
void visit(Visitor& v, LaunchOptions& c, const TrainConfig& all);
void visit(Visitor& v, SampleSection& c, const TrainConfig& all);
// Sections of data.
void visit(Visitor& v, SubsetSection& c, const TrainConfig& all);
void visit(Visitor& v, ValidationSubset& c, const TrainConfig& all);
// Entries of lists.
void visit(Visitor& v, SourceSection& c);
void visit(Visitor& v, comm::UnitOverride& c);

Need text_needed(const DataSection& c);  // for keys that tokens have no use for

}  // namespace fsdp::config
