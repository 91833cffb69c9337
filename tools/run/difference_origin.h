// Where the difference of a step began, from the hashes of its units
// (tools/checkpoint/unit_hashes.h) as the run has recorded them and as the replay computed them.
// Not here: computing the step again (replay.h).
//
// [Note: where it began] A step computes forward, backward and update, in this order. Weights that
// differ before the step are the work of the update before it, or of what the replay began with: of
// all other units the weights are equal, so the unit is known. With equal weights a gradient that
// differs is the work of this step. Backward computes the gradients of one unit after the other,
// and each from that of the unit before: the first one that differs is where it began. Where all of
// them differ, so does what backward began with, if the loss does: then it was the forward pass,
// and gradients do not say in which unit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/checkpoint/unit_hashes.h"

namespace fsdp::tools {

// What the hashes of the step before have said.
enum class StepBefore : uint8_t { kEqual, kNoHashes, kCheckpoint };  // the replay begins there

struct ComparedStep {
  int64_t step = 0;
  std::vector<UnitHash> recorded, computed;  // by unit
  std::optional<bool> equal_loss = {};       // none: the log has no line of the step
  StepBefore before = StepBefore::kEqual;
};

// "the difference began in unit blocks.1: ..."; "": nothing differs. `units`: see UnitHasher.
std::string origin_of(const std::vector<std::string>& units, const ComparedStep& step);

}  // namespace fsdp::tools
