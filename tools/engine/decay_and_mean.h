// Named choices of what a session does. Not here: their names in a configuration (tools/config).
#pragma once

#include <cstdint>

namespace fsdp {

// Which parameters weight decay shrinks: all of two or more dimensions, all, none.
enum class Decay : uint8_t { kMatrices, kAll, kNone };

// The loss of a step: the mean over all label tokens of the global batch; or the mean over ranks
// and micro-steps of each one's mean (PyTorch's habit), where a rank or micro-step without labels
// counts as 0.
enum class LossMean : uint8_t { kTokens, kRanks };

}  // namespace fsdp
